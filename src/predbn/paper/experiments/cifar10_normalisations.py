"""C6, figures 8 and A5: ResNet-20 with other normalisations and without any (Fixup).

Every scheme is evaluated with the eps of training, 0.001, and with a larger one, 0.1; the paper shows the better.
"""

from __future__ import annotations

from collections.abc import Sequence

from predbn.common import NotMeasured
from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, metric_info

from ..claims import Measurement
from ..drawing import metric_figure, severity_boxes
from ..experiment import experiment
from ..measurements import gain, mean
from ..networks import FIXUP, NORMALISED
from ..plans.cifar10 import LARGE_EPS, METHODS, NORMALISATIONS, STRATEGIES
from ..runs import Runs
from ..series import CLEAN, PREDICTION, TRAIN, Series, paired

PERFORMS_WELL = 0.02
"""The largest distance from train BN's clean accuracy at which Fixup counts as performing well."""


def _both_eps(network: str) -> tuple[Series, Series]:
    kind = network.rpartition("/")[2]
    return (
        Series(f"{kind} norm", NORMALISATIONS, "train", network=network),
        Series(f"{kind} norm, eps {LARGE_EPS:g}", NORMALISATIONS, "train", network=f"{network}[eps={LARGE_EPS}]"),
    )


INSTANCE, LAYER, GROUP = (_both_eps(network) for network in NORMALISED)
NO_NORM = Series("no norm (Fixup)", NORMALISATIONS, "train", network=FIXUP)
TRAIN_BOTH_EPS = TRAIN, Series(f"train BN, eps {LARGE_EPS:g}", STRATEGIES, f"train[eps={LARGE_EPS}]")
PREDICTION_BOTH_EPS = PREDICTION, Series(f"prediction BN, eps {LARGE_EPS:g}", STRATEGIES, f"batch[eps={LARGE_EPS}]")
SCHEMES: tuple[tuple[Series, ...], ...] = (TRAIN_BOTH_EPS, PREDICTION_BOTH_EPS, INSTANCE, LAYER, GROUP, (NO_NORM,))
COLOURS = {series: colour for scheme, colour in zip(SCHEMES, (GREY, *HUES[:5]), strict=True) for series in scheme}


def better_eps(runs: Runs, scheme: tuple[Series, ...], metric: str) -> Series:
    """The series of a scheme with the better mean under shift."""
    sign = metric_info(metric).sign
    return max(scheme, key=lambda series: sign * series.mean(runs, metric))


def _most_accurate(runs: Runs) -> list[Measurement]:
    train, prediction, *others = (better_eps(runs, scheme, "accuracy") for scheme in SCHEMES)
    return [
        gain(runs, prediction, other, "accuracy", name=f"gain of prediction BN over {other.label}")
        for other in (train, *others)
    ]


def _instance_norm(runs: Runs) -> list[Measurement]:
    instance, prediction = INSTANCE[1], better_eps(runs, PREDICTION_BOTH_EPS, "ece")
    return [gain(runs, instance, prediction, "ece"), gain(runs, instance, prediction, "accuracy", side="below")]


def _better_calibrated(runs: Runs) -> list[Measurement]:
    prediction, *others = (better_eps(runs, scheme, "ece") for scheme in (PREDICTION_BOTH_EPS, LAYER, GROUP))
    return [gain(runs, prediction, other, "ece", name=f"gain of prediction BN over {other.label}") for other in others]


def _fixup_on_clean_images(runs: Runs) -> list[Measurement]:
    fixup = NO_NORM.values(runs, "accuracy", CLEAN).groupby("model", observed=True)["value"].mean()
    difference = fixup - TRAIN.mean(runs, "accuracy", CLEAN)
    what = "accuracy on clean images: Fixup minus the mean of train BN"
    return [mean(what, difference, "accuracy", over="model", bound=-PERFORMS_WELL)]


def _fixup(runs: Runs) -> list[Measurement]:
    mild, strong = (paired(runs, (TRAIN, PREDICTION, NO_NORM), "accuracy", (severity,)) for severity in (1, 5))
    fall = (mild - strong).dropna()
    midpoint = (fall[TRAIN.label] + fall[PREDICTION.label]) / 2
    what = "accuracy: fall of Fixup from severity 1 to 5, minus the midpoint of the falls of train and prediction BN"
    return [mean(what, fall[NO_NORM.label] - midpoint, "accuracy")]


def _boxes(runs: Runs, series: Sequence[Series], metric: str, hollow: Sequence[Series]) -> FigureVariant:
    looks = [SeriesStyle(line.label, COLOURS[line], line in hollow) for line in series]
    return severity_boxes(runs, series, metric, looks)


def _measured_schemes(runs: Runs) -> list[tuple[Series, ...]]:
    measured = [scheme for scheme in SCHEMES if scheme[0].is_measured(runs)]
    if not any(scheme[0].plan == NORMALISATIONS for scheme in measured):
        raise NotMeasured("no network with another normalisation was measured")
    return measured


def _draw_better_eps(metric: str, runs: Runs) -> FigureVariant:
    series = [better_eps(runs, scheme, metric) for scheme in _measured_schemes(runs)]
    return _boxes(runs, series, metric, TRAIN_BOTH_EPS)


def _draw_both_eps(metric: str, runs: Runs) -> FigureVariant:
    schemes = _measured_schemes(runs)
    larger = [scheme[1] for scheme in schemes if len(scheme) > 1]
    return _boxes(runs, [series for scheme in schemes for series in scheme], metric, [TRAIN, *larger])


NORMALISATION_SCHEMES = experiment(
    "C6",
    plans=(METHODS, STRATEGIES, NORMALISATIONS),
    measures={1: _most_accurate, 2: _instance_norm, 3: _fixup, 4: _fixup_on_clean_images, 5: _better_calibrated},
    figures=[
        metric_figure(
            "normalisations",
            "Other normalisations, each with its better eps",
            "Boxes over the 19 corruptions; the eps of every scheme is the better of 0.001 and 0.1 for the metric.",
            _draw_better_eps,
            ("ece", "accuracy"),
        ),
        metric_figure(
            "normalisations-eps",
            "Other normalisations with both eps",
            "Boxes over the 19 corruptions. Hollow boxes are the larger eps, and train BN.",
            _draw_both_eps,
            ("ece", "accuracy", "brier"),
        ),
    ],
)
