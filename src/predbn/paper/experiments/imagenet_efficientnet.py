"""I7, figure 6: a network for which prediction-time BN is worse, with EfficientNet-Lite0 as a stand-in.

The paper's network is an EfficientNet trained as Noisy Student on 300 million additional images; we do not have its
weights. EfficientNet-Lite0 was not trained like that, but it also loses accuracy to prediction-time BN on images
without a shift. The results are about EfficientNet-Lite0 only.
"""

from __future__ import annotations

from predbn.report import FigureVariant, heatmap

from ..drawing import looks_of, metric_figure, severity_figure
from ..experiment import experiment
from ..image_measurements import accuracy_gain_by_image, mce_gain
from ..measurements import all_of, gains
from ..plans.imagenet import LITE0, LITE0_METHODS
from ..runs import Runs
from ..series import METRICS, TOP
from .methods import methods_of

SERIES = methods_of(LITE0_METHODS, LITE0, ("vanilla", "temperature"))
TRAIN, PREDICTION, _, _ = SERIES


GAIN = "gain of prediction BN"


def _heatmap(metric: str, runs: Runs) -> FigureVariant:
    return FigureVariant(heatmap(runs[LITE0_METHODS].frame, metric, method="vanilla"))


IMAGENET_EFFICIENTNET = experiment(
    "I7",
    plans=(LITE0_METHODS,),
    measures={
        2: lambda runs: [
            accuracy_gain_by_image(runs, PREDICTION, TRAIN, ("clean", 0), "below", name=f"{GAIN} on clean images")
        ],
        3: gains(PREDICTION, TRAIN, severities=(1,), name=f"{GAIN} at severity 1", side="below"),
        4: gains(PREDICTION, TRAIN, severities=TOP, name=f"{GAIN} at severity 5"),
        5: all_of(gains(PREDICTION, TRAIN, side="below", name=GAIN), mce_gain(TRAIN, PREDICTION, "gain of train BN")),
    },
    figures=[
        severity_figure(
            "stand-in",
            "EfficientNet-Lite0, a stand-in, on ImageNet-C",
            "Boxes over the 19 corruptions. Hollow boxes are train BN, filled boxes prediction-time BN with batches of "
            "100.",
            SERIES,
            ("brier", "accuracy", "ece"),
            looks_of(SERIES, pairs=True),
        ),
        metric_figure(
            "where",
            "Where EfficientNet-Lite0 gains, and where it loses",
            "Prediction-time BN compared with train BN on every split, signed so that positive (blue) is better.",
            _heatmap,
            METRICS,
        ),
    ],
)
