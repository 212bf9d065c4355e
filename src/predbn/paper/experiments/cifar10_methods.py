"""C1, figures 4a and A1: three methods, each with train and with prediction-time BN, on CIFAR-10-C."""

from __future__ import annotations

from predbn.report import Panel

from ..claims import Claim, Measurement
from ..drawing import by_metric, looks_of, severity_boxes
from ..experiment import Experiment
from ..measure import gain, growth, share, signed
from ..runs import Runs
from ..series import METRICS, Series, paired

__all__ = ["EXPERIMENT", "SERIES", "SMALL_SHARE"]

SERIES = tuple(
    Series(f"{method}, {name}", "methods", strategy, method)
    for method in ("vanilla", "temperature", "ensemble")
    for strategy, name in (("train", "train BN"), ("batch", "prediction BN"))
)
VANILLA_TRAIN, VANILLA, TEMPERATURE_TRAIN, _, _, ENSEMBLE = SERIES
PAIRS = tuple(zip(SERIES[::2], SERIES[1::2], strict=True))

SMALL_SHARE = 1 / 3


def _beats(runs: Runs) -> list[Measurement]:
    return [gain(runs, batch, train, metric) for train, batch in PAIRS for metric in METRICS]


def _grows(runs: Runs) -> list[Measurement]:
    return [growth(runs, VANILLA, VANILLA_TRAIN, metric) for metric in METRICS]


def _best(runs: Runs) -> list[Measurement]:
    found = []
    for metric in METRICS:
        others = signed(paired(runs, SERIES, metric), metric).mean().drop(ENSEMBLE.label)
        second = next(each for each in SERIES if each.label == others.idxmax())
        found.append(gain(runs, ENSEMBLE, second, metric))
    return found


def _hardly_moves(runs: Runs) -> list[Measurement]:
    low, high = (paired(runs, (VANILLA_TRAIN, ENSEMBLE), "brier", (level,)) for level in (1, 5))
    rise = (high - low).dropna()
    what = "Brier score: rise of the ensemble with prediction BN from severity 1 to 5, of that of vanilla, train BN"
    return [share(what, rise[ENSEMBLE.label], rise[VANILLA_TRAIN.label], side="below", bound=SMALL_SHARE)]


def _temperature(runs: Runs) -> list[Measurement]:
    return [gain(runs, VANILLA, TEMPERATURE_TRAIN, metric) for metric in ("brier", "ece")]


def _draw(runs: Runs) -> list[Panel]:
    caption = (
        "Boxes over the 19 corruptions: median, quartiles, minimum and maximum. Hollow boxes are train BN, filled ones "
        "prediction-time BN."
    )
    looks = looks_of(SERIES, pairs=True)
    return [
        by_metric(
            "methods",
            "Three methods with train and prediction-time BN",
            caption,
            lambda metric: severity_boxes(runs, SERIES, metric, looks),
            ("brier", "accuracy", "ece"),
        )
    ]


EXPERIMENT = Experiment(
    id="C1",
    figure="figures 4a and A1",
    title="methods with train and prediction-time BN on CIFAR-10-C",
    plans=("methods",),
    claims=(
        Claim(
            "C1.1",
            "figure A1",
            "Under shift, prediction-time BN beats train BN in accuracy, Brier score and ECE, whatever the method.",
            "The gain over all 95 splits, for each of the three methods and each metric, must be above 0.",
            _beats,
        ),
        Claim(
            "C1.2",
            "figure 4a",
            "The more severe the shift, the more prediction-time BN gains.",
            "For single models, the gain at severity 5 must be larger than the gain at severity 1.",
            _grows,
        ),
        Claim(
            "C1.3",
            "figure 4a",
            "The ensemble with prediction-time BN is the best of the six combinations under shift.",
            "It is compared with the best of the other five, metric by metric, on all 95 splits.",
            _best,
        ),
        Claim(
            "C1.4",
            "figure 4a",
            "Ensembles with prediction-time BN are affected only minimally by the severity of the shift.",
            "Nothing is wholly unaffected, so we ask for a rise in the Brier score from severity 1 to 5 of less than a "
            "third of that of single models with train BN.",
            _hardly_moves,
        ),
        Claim(
            "C1.5",
            "figure 4a",
            "Temperature scaling with train BN does not do as well under shift as prediction-time BN.",
            "Single models with prediction-time BN and no temperature must have the better Brier score and ECE over "
            "all 95 splits.",
            _temperature,
        ),
    ),
    draw=_draw,
)
