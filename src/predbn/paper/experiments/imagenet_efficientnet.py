"""I7, figure 7: a network for which prediction-time BN is worse, with EfficientNet-Lite0 as a stand-in.

The paper's network is an EfficientNet trained as Noisy Student on 300 million additional images; we do not have its
weights. EfficientNet-Lite0 was not trained like that, but it also loses accuracy to prediction-time BN on images
without a shift. The results are about EfficientNet-Lite0 only.
"""

from __future__ import annotations

from predbn.report import FigureVariant, heatmap

from ..claims import Claim
from ..drawing import looks_of, metric_figure, severity_figure
from ..experiment import Experiment, FigureSpec
from ..image_measurements import accuracy_gain_by_image, mce_gain
from ..measurements import all_of, gains, unmeasured
from ..plans.imagenet import LITE0, LITE0_METHODS
from ..runs import Runs
from ..series import METRICS, TOP
from .methods import methods_of

SERIES = methods_of(LITE0_METHODS, LITE0, ("vanilla", "temperature"))
TRAIN, PREDICTION, _, _ = SERIES
STAND_IN = "EfficientNet-Lite0, a stand-in:"
GAIN = "gain of prediction BN"


def _figures(runs: Runs) -> list[FigureSpec]:
    def draw_splits(metric: str) -> FigureVariant:
        return FigureVariant(heatmap(runs[LITE0_METHODS].frame, metric, method="vanilla"))

    return [
        severity_figure(
            runs,
            "stand-in",
            "EfficientNet-Lite0, a stand-in, on ImageNet-C",
            "Boxes over the 19 corruptions. Hollow boxes are train BN, filled boxes prediction-time BN with batches of "
            "100.",
            SERIES,
            ("brier", "accuracy", "ece"),
            looks_of(SERIES, pairs=True),
            is_own=True,
        ),
        metric_figure(
            "where",
            "Where EfficientNet-Lite0 gains, and where it loses",
            "Prediction-time BN compared with train BN on every split, signed so that positive (blue) is better.",
            draw_splits,
            METRICS,
            is_own=True,
        ),
    ]


EXPERIMENT = Experiment(
    id="I7",
    figure="figure 7",
    title="a network for which prediction-time BN is worse",
    plans=(LITE0_METHODS,),
    claims=(
        Claim(
            "I7.1",
            "figure 7",
            "For EfficientNet trained as Noisy Student prediction-time BN is worse than train BN on ImageNet-C.",
            "",
            unmeasured(
                "we do not have the weights; with them and ImageNet: predbn evaluate --data imagenet --root DIR "
                "--model timm:tf_efficientnet_b7.ns_jft_in1k --batch-size 100 --precision fp16"
            ),
        ),
        Claim(
            "I7.2",
            None,
            f"{STAND_IN} on clean images prediction-time BN is less accurate.",
            "Image by image; both strategies see the same images.",
            lambda runs: [
                accuracy_gain_by_image(runs, PREDICTION, TRAIN, ("clean", 0), "below", name=f"{GAIN} on clean images")
            ],
        ),
        Claim(
            "I7.3",
            None,
            f"{STAND_IN} under the mildest shift prediction-time BN is still worse.",
            "At severity 1, on every metric.",
            gains(PREDICTION, TRAIN, severities=(1,), name=f"{GAIN} at severity 1", side="below"),
        ),
        Claim(
            "I7.4",
            None,
            f"{STAND_IN} under the strongest shift prediction-time BN is better.",
            "At severity 5, on every metric.",
            gains(PREDICTION, TRAIN, severities=TOP, name=f"{GAIN} at severity 5"),
        ),
        Claim(
            "I7.5",
            None,
            f"{STAND_IN} over all shifts prediction-time BN is worse, as it is for Noisy Student.",
            "Over all 95 splits, on every metric, and in mCE.",
            all_of(gains(PREDICTION, TRAIN, side="below", name=GAIN), mce_gain(TRAIN, PREDICTION, "gain of train BN")),
        ),
    ),
    make_figures=_figures,
)
