"""I7, figure 7: a network on which prediction-time BN does worse; EfficientNet-Lite0 stands in for it.

The paper's network is an EfficientNet trained as Noisy Student on 300 million more images; its weights are not at hand.
EfficientNet-Lite0 has no such training, but it too loses accuracy to prediction-time BN where nothing has shifted. What
is found with it is said of it alone.
"""

from __future__ import annotations

from collections.abc import Callable

from predbn.common import NotMeasured
from predbn.report import Panel, Variant, heatmap

from ..claims import Claim, Measurement
from ..corruption_error import gain_by_image, mce_gain
from ..drawing import by_metric, looks_of, severity_boxes
from ..experiment import Experiment
from ..imagenet import LITE0, LITE_METHODS
from ..measure import gain
from ..runs import Runs
from ..series import METRICS
from .imagenet_methods import methods_of

__all__ = ["EXPERIMENT"]

SERIES = methods_of(LITE_METHODS, LITE0)
TRAIN, PREDICTION, _, _ = SERIES
STAND_IN = "EfficientNet-Lite0, a stand-in:"


def _noisy_student(runs: Runs) -> list[Measurement]:
    raise NotMeasured(
        "the weights are not at hand; with them and ImageNet: predbn evaluate --data imagenet --root DIR --model "
        "timm:tf_efficientnet_b7.ns_jft_in1k --batch-size 100 --precision fp16"
    )


def _loses_clean(runs: Runs) -> list[Measurement]:
    return [gain_by_image(runs, PREDICTION, TRAIN, ("clean", 0), "below")]


def _at(severity: int, side: str) -> Callable[[Runs], list[Measurement]]:
    def measure(runs: Runs) -> list[Measurement]:
        where = f" at severity {severity}"
        return [
            gain(runs, PREDICTION, TRAIN, metric, (severity,), where=where, side=side)  # type: ignore[arg-type]
            for metric in METRICS
        ]

    return measure


def _overall(runs: Runs) -> list[Measurement]:
    gains = [gain(runs, PREDICTION, TRAIN, metric, side="below") for metric in METRICS]
    return [*gains, mce_gain(runs, TRAIN, PREDICTION)]


def _draw(runs: Runs) -> list[Panel]:
    looks = looks_of(SERIES, pairs=True)
    boxes = by_metric(
        "stand-in",
        "EfficientNet-Lite0, a stand-in, on ImageNet-C",
        "Boxes over the 19 corruptions. Hollow boxes are train BN, filled ones prediction-time BN with batches of 100.",
        lambda metric: severity_boxes(runs, SERIES, metric, looks),
        ("brier", "accuracy", "ece"),
    )
    frame = runs[LITE_METHODS].frame
    places = by_metric(
        "where",
        "Where EfficientNet-Lite0 gains, and where it loses",
        "Prediction-time BN against train BN on every split, signed so that positive and blue is better.",
        lambda metric: Variant(heatmap(frame, metric, method="vanilla")),
        ("accuracy", "brier", "ece"),
    )
    return [boxes, places]


EXPERIMENT = Experiment(
    id="I7",
    figure="figure 7",
    title="a network for which prediction-time BN is worse",
    plans=(LITE_METHODS,),
    claims=(
        Claim(
            "I7.1",
            "figure 7",
            "For EfficientNet trained as Noisy Student prediction-time BN is worse than train BN on ImageNet-C.",
            "",
            _noisy_student,
        ),
        Claim(
            "I7.2",
            "not in the paper",
            f"{STAND_IN} on clean images prediction-time BN is less accurate.",
            "Image by image, both strategies on the same ones.",
            _loses_clean,
        ),
        Claim(
            "I7.3",
            "not in the paper",
            f"{STAND_IN} under the mildest shift prediction-time BN is still worse.",
            "At severity 1, on every metric.",
            _at(1, "below"),
        ),
        Claim(
            "I7.4",
            "not in the paper",
            f"{STAND_IN} under the strongest shift prediction-time BN is better.",
            "At severity 5, on every metric.",
            _at(5, "above"),
        ),
        Claim(
            "I7.5",
            "not in the paper",
            f"{STAND_IN} over all shifts prediction-time BN is worse, as it is for Noisy Student.",
            "Over all 95 splits, on every metric, and in mCE.",
            _overall,
        ),
    ),
    draw=_draw,
)
