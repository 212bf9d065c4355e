"""C6, figures 9 and A5: ResNet-20 with other normalisations, and with none."""

from __future__ import annotations

from predbn.common import NotMeasured
from predbn.report import GREY, HUES, Look, Panel, meaning

from ..claims import Claim, Measurement
from ..drawing import by_metric, severity_boxes
from ..experiment import Experiment
from ..measure import gain, mean
from ..networks import FIXUP, NORMALISED
from ..plans import LARGE_EPS
from ..runs import Runs
from ..series import Series, paired
from .baseline import PREDICTION, TRAIN

__all__ = ["EXPERIMENT", "FAMILIES"]


def _family(network: str) -> tuple[Series, Series]:
    kind = network.rpartition("/")[2]
    return (
        Series(f"{kind} norm", "normalisations", "train", network=network),
        Series(f"{kind} norm, eps {LARGE_EPS:g}", "normalisations", "train", network=f"{network}[eps={LARGE_EPS}]"),
    )


INSTANCE, LAYER, GROUP = (_family(network) for network in NORMALISED)
NOTHING = Series("no norm (Fixup)", "normalisations", "train", network=FIXUP)
TRAINS = TRAIN, Series(f"train BN, eps {LARGE_EPS:g}", "strategies", f"train[eps={LARGE_EPS}]")
PREDICTIONS = PREDICTION, Series(f"prediction BN, eps {LARGE_EPS:g}", "strategies", f"batch[eps={LARGE_EPS}]")
FAMILIES: tuple[tuple[Series, ...], ...] = (TRAINS, PREDICTIONS, INSTANCE, LAYER, GROUP, (NOTHING,))
COLOURS = (GREY, *HUES[:5])


def best(runs: Runs, family: tuple[Series, ...], metric: str) -> Series:
    """The one of a family with the better mean under shift: the paper shows each scheme with its better eps."""
    sign = meaning(metric).sign
    return max(family, key=lambda series: sign * series.values(runs, metric, None)["value"].mean())


def _most_accurate(runs: Runs) -> list[Measurement]:
    first = best(runs, PREDICTIONS, "accuracy")
    others = (TRAINS, *FAMILIES[2:])
    return [gain(runs, first, best(runs, family, "accuracy"), "accuracy") for family in others]


def _instance(runs: Runs) -> list[Measurement]:
    instance, prediction = best(runs, INSTANCE, "ece"), best(runs, PREDICTIONS, "ece")
    return [
        gain(runs, instance, prediction, "ece"),
        gain(runs, instance, prediction, "accuracy", side="below"),
    ]


def _fixup(runs: Runs) -> list[Measurement]:
    series = TRAIN, PREDICTION, NOTHING
    low, high = (paired(runs, series, "accuracy", (level,)) for level in (1, 5))
    fall = (low - high).dropna()
    halfway = (fall[TRAIN.label] + fall[PREDICTION.label]) / 2
    what = "accuracy: fall of Fixup from severity 1 to 5, less the one halfway between train and prediction BN"
    return [mean(what, fall[NOTHING.label] - halfway, "accuracy")]


def _draw(runs: Runs) -> list[Panel]:
    there = [(family, hue) for family, hue in zip(FAMILIES, COLOURS, strict=True) if family[0].is_there(runs)]
    if not any(family[0].plan == "normalisations" for family, _ in there):
        raise NotMeasured("no network with another normalisation was measured")

    def looks(series: list[Series], hollow: tuple[Series, ...]) -> list[Look]:
        hue = {each: colour for family, colour in there for each in family}
        return [Look(each.label, hue[each], each in hollow) for each in series]

    larger = tuple(family[1] for family, _ in there if len(family) > 1)

    def compact(metric: str) -> list[Series]:
        return [best(runs, family, metric) for family, _ in there]

    def every() -> list[Series]:
        return [each for family, _ in there for each in family]

    return [
        by_metric(
            "normalisations",
            "Other normalisations, each with its better eps",
            "Boxes over the 19 corruptions; the eps of every scheme is the better of 0.001 and 0.1 for the metric.",
            lambda metric: severity_boxes(runs, compact(metric), metric, looks(compact(metric), TRAINS)),
            ("ece", "accuracy"),
        ),
        by_metric(
            "normalisations-eps",
            "Other normalisations with both eps",
            "Boxes over the 19 corruptions. Hollow boxes are the larger eps, and train BN.",
            lambda metric: severity_boxes(runs, every(), metric, looks(every(), (*TRAINS, *larger))),
            ("ece", "accuracy", "brier"),
        ),
    ]


EXPERIMENT = Experiment(
    id="C6",
    figure="figures 9 and A5",
    title="normalisation schemes",
    plans=("methods", "strategies", "normalisations"),
    claims=(
        Claim(
            "C6.1",
            "figure 9",
            "Under shift, prediction-time BN has the best accuracy of all normalisation schemes.",
            "Against train BN, instance, layer and group norm and Fixup, each with the better of its two eps, on all "
            "95 splits.",
            _most_accurate,
        ),
        Claim(
            "C6.2",
            "figure 9",
            "Instance norm has a lower ECE than prediction-time BN, at the cost of accuracy.",
            "Each with the eps of its lower ECE, on all 95 splits.",
            _instance,
        ),
        Claim(
            "C6.3",
            "figure A5",
            "Without normalisation (Fixup) accuracy falls with severity as it does with train BN.",
            "Its fall from severity 1 to 5 must be nearer to that of train BN than to that of prediction-time BN.",
            _fixup,
        ),
    ),
    draw=_draw,
)
