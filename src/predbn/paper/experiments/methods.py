"""C1 and I1: methods with train BN and with prediction-time BN, under all corruptions.

C1  figures 3a and A1, CIFAR-10-C: single models, temperature scaling and ensembles of ten ResNet-20
I1  figures 3b and A3, ImageNet-C: ResNet-50 with and without temperature scaling, and its mCE
"""

from __future__ import annotations

from ..claims import Measure, Measurement
from ..drawing import looks_of, severity_figure
from ..experiment import FigureSpec, experiment
from ..image_measurements import accuracy_gain_by_image, ece_gain_by_image, mce, mce_gain
from ..measurements import all_of, gain, gain_growth, gains, share, signed
from ..networks import WITH_BATCH_NORM
from ..plans import cifar10, imagenet
from ..runs import Runs
from ..series import CLEAN, METRICS, STRATEGY_LABELS, Series, paired

PAPER_MCE, MCE_TOLERANCE = 60.28, 3.0
MINIMAL_RISE = 1 / 3
"""The largest share of train BN's rise that counts as affected only minimally."""
SMALL_LOSS = 0.02
"""The largest loss of accuracy that counts as a small amount: about the spread between training recipes."""


def methods_of(plan: str, network: str, methods: tuple[str, ...]) -> tuple[Series, ...]:
    """For each method one series with train BN and one with prediction-time BN."""
    return tuple(
        Series(f"{method}, {label}", plan, strategy, method, network)
        for method in methods
        for strategy, label in STRATEGY_LABELS
    )


CIFAR10_SERIES = methods_of(cifar10.METHODS, WITH_BATCH_NORM, ("vanilla", "temperature", "ensemble"))
CIFAR10_TRAIN, CIFAR10_PREDICTION, CIFAR10_TEMPERATURE, _, ENSEMBLE_TRAIN, ENSEMBLE = CIFAR10_SERIES
IMAGENET_SERIES = methods_of(imagenet.METHODS, imagenet.RESNET50, ("vanilla", "temperature"))
IMAGENET_TRAIN, IMAGENET_PREDICTION, IMAGENET_TEMPERATURE, _ = IMAGENET_SERIES


def _prediction_over_train(series: tuple[Series, ...]) -> Measure:
    """The gain of prediction-time BN for each method and metric."""
    return all_of(
        *(
            gains(prediction, train, name=f"gain of prediction BN ({train.method})")
            for train, prediction in zip(series[::2], series[1::2], strict=True)
        )
    )


def _methods_figure(title: str, series: tuple[Series, ...]) -> FigureSpec:
    caption = (
        "Boxes over the 19 corruptions: median, quartiles, minimum and maximum. Hollow boxes are train BN, filled "
        "boxes prediction-time BN."
    )
    return severity_figure(
        "methods", title, caption, series, ("brier", "accuracy", "ece"), looks_of(series, pairs=True)
    )


def _ensemble_is_best(runs: Runs) -> list[Measurement]:
    measurements = []
    for metric in METRICS:
        others = signed(paired(runs, CIFAR10_SERIES, metric), metric).mean().drop(ENSEMBLE.label)
        second = next(series for series in CIFAR10_SERIES if series.label == others.idxmax())
        name = f"gain of the ensemble with prediction BN over the second best ({second.label})"
        measurements.append(gain(runs, ENSEMBLE, second, metric, name=name))
    return measurements


def _ensemble_rises_little(runs: Runs) -> list[Measurement]:
    series = (CIFAR10_TRAIN, ENSEMBLE_TRAIN, ENSEMBLE)
    mild, strong = (paired(runs, series, "brier", (severity,)) for severity in (1, 5))
    rise = (strong - mild).dropna()
    what = "Brier score: rise of the ensemble with prediction BN, as a share of the rise of {} with train BN"
    return [
        share(what.format(name), rise[ENSEMBLE.label], rise[other.label], side="below", bound=MINIMAL_RISE)
        for name, other in (("single models", CIFAR10_TRAIN), ("the ensemble", ENSEMBLE_TRAIN))
    ]


def _temperature(prediction: Series, temperature: Series, metric: str) -> Measure:
    name = "gain of prediction BN without a temperature over train BN with one"
    return gains(prediction, temperature, (metric,), name=name)


def _slightly_worse_on_clean_images(runs: Runs) -> list[Measurement]:
    first, second, split = IMAGENET_PREDICTION, IMAGENET_TRAIN, ("clean", 0)
    name = "gain of prediction BN on clean images"
    return [
        accuracy_gain_by_image(runs, first, second, split, "below", name=name),
        accuracy_gain_by_image(runs, first, second, split, "above", -SMALL_LOSS, name=name),
        # The Brier scores of single images are not stored, so there is one value, and no interval.
        gain(runs, first, second, "brier", CLEAN, over="model", side="below", name=name),
        ece_gain_by_image(runs, first, second, split, "above", name=name),
    ]


CIFAR10_METHODS = experiment(
    "C1",
    plans=(cifar10.METHODS, cifar10.SINGLE_PRECISION),
    measures={
        1: _prediction_over_train(CIFAR10_SERIES),
        2: gain_growth(CIFAR10_PREDICTION, CIFAR10_TRAIN),
        3: _ensemble_is_best,
        4: _ensemble_rises_little,
        5: _temperature(CIFAR10_PREDICTION, CIFAR10_TEMPERATURE, "brier"),
        6: _temperature(CIFAR10_PREDICTION, CIFAR10_TEMPERATURE, "ece"),
    },
    figures=[_methods_figure("Three methods with train and prediction-time BN", CIFAR10_SERIES)],
)

IMAGENET_METHODS = experiment(
    "I1",
    plans=(imagenet.METHODS,),
    measures={
        1: lambda runs: [
            mce(runs, IMAGENET_PREDICTION, "above", PAPER_MCE - MCE_TOLERANCE),
            mce(runs, IMAGENET_PREDICTION, "below", PAPER_MCE + MCE_TOLERANCE),
        ],
        2: all_of(
            _prediction_over_train(IMAGENET_SERIES),
            mce_gain(IMAGENET_PREDICTION, IMAGENET_TRAIN, "gain of prediction BN (vanilla)"),
        ),
        3: gain_growth(IMAGENET_PREDICTION, IMAGENET_TRAIN),
        4: _temperature(IMAGENET_PREDICTION, IMAGENET_TEMPERATURE, "brier"),
        5: _slightly_worse_on_clean_images,
        7: _temperature(IMAGENET_PREDICTION, IMAGENET_TEMPERATURE, "ece"),
    },
    figures=[_methods_figure("ResNet-50 on ImageNet-C with train and prediction-time BN", IMAGENET_SERIES)],
)
