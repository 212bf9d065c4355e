"""I1, figures 4b and A3: methods with train and prediction-time BN on ImageNet-C, and the mCE."""

from __future__ import annotations

from predbn.common import NotMeasured
from predbn.report import Panel

from ..claims import Claim, Measurement
from ..corruption_error import gain_by_image, mce_gain, mce_measured
from ..drawing import by_metric, looks_of, severity_boxes
from ..experiment import Experiment
from ..imagenet import METHODS, RESNET50
from ..measure import gain, growth
from ..runs import Runs
from ..series import METRICS, Series

__all__ = ["EXPERIMENT", "PREDICTION", "TRAIN", "methods_of"]

THE_PAPERS, SCHNEIDERS = 60.28, 62.2
NEAR = 3.0


def methods_of(plan: str, network: str) -> tuple[Series, ...]:
    """Vanilla and temperature, each with train and with prediction-time BN."""
    return tuple(
        Series(f"{method}, {name}", plan, strategy, method, network)
        for method in ("vanilla", "temperature")
        for strategy, name in (("train", "train BN"), ("batch", "prediction BN"))
    )


SERIES = methods_of(METHODS, RESNET50)
TRAIN, PREDICTION, TEMPERATURE_TRAIN, _ = SERIES
PAIRS = tuple(zip(SERIES[::2], SERIES[1::2], strict=True))


def _mce(runs: Runs) -> list[Measurement]:
    return [
        mce_measured(runs, PREDICTION, "above", THE_PAPERS - NEAR),
        mce_measured(runs, PREDICTION, "below", THE_PAPERS + NEAR),
    ]


def _beats(runs: Runs) -> list[Measurement]:
    gains = [gain(runs, batch, train, metric) for train, batch in PAIRS for metric in METRICS]
    return [*gains, mce_gain(runs, PREDICTION, TRAIN)]


def _grows(runs: Runs) -> list[Measurement]:
    return [growth(runs, PREDICTION, TRAIN, metric) for metric in METRICS]


def _temperature(runs: Runs) -> list[Measurement]:
    return [gain(runs, PREDICTION, TEMPERATURE_TRAIN, metric) for metric in ("brier", "ece")]


def _clean(runs: Runs) -> list[Measurement]:
    return [gain_by_image(runs, PREDICTION, TRAIN, ("clean", 0), "below")]


def _ensemble(runs: Runs) -> list[Measurement]:
    raise NotMeasured("there is one set of weights, and an ensemble needs several")


def _draw(runs: Runs) -> list[Panel]:
    caption = (
        "Boxes over the 19 corruptions: median, quartiles, minimum and maximum. Hollow boxes are train BN, filled ones "
        "prediction-time BN with batches of 100 images. There is no ensemble: there is one set of weights."
    )
    looks = looks_of(SERIES, pairs=True)
    return [
        by_metric(
            "methods",
            "ResNet-50 on ImageNet-C with train and prediction-time BN",
            caption,
            lambda metric: severity_boxes(runs, SERIES, metric, looks),
            ("brier", "accuracy", "ece"),
        )
    ]


EXPERIMENT = Experiment(
    id="I1",
    figure="figures 4b and A3",
    title="methods with train and prediction-time BN on ImageNet-C",
    plans=(METHODS,),
    claims=(
        Claim(
            "I1.1",
            "section 4",
            f"ResNet-50 with prediction-time BN has an mCE of {THE_PAPERS} %.",
            f"With other weights of the same architecture, and corruptions made anew, we ask for {NEAR:.0f} points "
            f"around it: Schneider et al. (2020) report {SCHNEIDERS} for the same method. The interval is over images, "
            "so that it says how far a part of the 50,000 may be off.",
            _mce,
        ),
        Claim(
            "I1.2",
            "figure A3",
            "Under shift, prediction-time BN beats train BN in accuracy, Brier score and ECE.",
            "The gain over all 95 splits, vanilla and with temperature, must be above 0; so must that in mCE. The "
            "temperature is fitted on the clean images, the only labelled ones there are: one number from all of them.",
            _beats,
        ),
        Claim(
            "I1.3",
            "figure 4b",
            "The more severe the shift, the more prediction-time BN gains.",
            "The gain at severity 5 must be larger than the gain at severity 1.",
            _grows,
        ),
        Claim(
            "I1.4",
            "figure 4b",
            "Temperature scaling with train BN does not do as well under shift as prediction-time BN.",
            "Prediction-time BN without a temperature must have the better Brier score and ECE over all 95 splits.",
            _temperature,
        ),
        Claim(
            "I1.5",
            "figure A3 at severity 0",
            "On clean images prediction-time BN is less accurate.",
            "Image by image, both strategies on the same ones.",
            _clean,
        ),
        Claim(
            "I1.6",
            "figure A3",
            "Ensembles with prediction-time BN are the best in accuracy and Brier score, and lose in ECE.",
            "",
            _ensemble,
        ),
    ),
    draw=_draw,
)
