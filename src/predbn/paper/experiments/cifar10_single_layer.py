"""C7 and C8: prediction-time statistics in a single layer of ResNet-20.

C7  figures 11 and A15: the usual network, with prediction statistics only in its last batch norm layer
C8  figures 12 and A14: a network whose only batch norm layer is before the final linear layer
"""

from __future__ import annotations

from ..drawing import looks_of, severity_figure
from ..experiment import experiment
from ..measurements import gain_share, gains
from ..networks import ONE_LAYER
from ..plans.cifar10 import METHODS, ONE_BN_LAYER, STRATEGIES
from ..series import PREDICTION, TRAIN, Series

MOST = 0.5
FIGURE_METRICS = ("ece", "accuracy", "brier")

LAST = Series("prediction BN in the last layer", STRATEGIES, "batch[layers=last]")
ONE = Series("one layer, prediction BN", ONE_BN_LAYER, "batch", network=ONE_LAYER)
ONE_LAYER_SERIES = (TRAIN, PREDICTION, Series("one layer, train BN", ONE_BN_LAYER, "train", network=ONE_LAYER), ONE)


LAST_LAYER = experiment(
    "C7",
    plans=(METHODS, STRATEGIES),
    measures={1: gains(LAST, TRAIN, side="below", name="gain of prediction BN in the last layer alone")},
    figures=[
        severity_figure(
            "last-layer",
            "Prediction statistics in the last layer only",
            "Boxes over the 19 corruptions. In the third series all layers but the last keep their train statistics.",
            (TRAIN, PREDICTION, LAST),
            FIGURE_METRICS,
        )
    ],
)

ONE_BATCH_NORM_LAYER = experiment(
    "C8",
    plans=(METHODS, ONE_BN_LAYER),
    measures={
        1: gain_share(
            "gain of one layer with prediction BN over train BN, as a share of the gain of all layers",
            (ONE, TRAIN),
            (PREDICTION, TRAIN),
            side="above",
            bound=MOST,
        ),
        2: gains(PREDICTION, ONE, name="gain of all layers over one layer, both with prediction BN"),
    },
    figures=[
        severity_figure(
            "one-layer",
            "One batch norm layer before the last linear layer",
            "Boxes over the 19 corruptions, for networks with batch norm everywhere and with a single such layer.",
            ONE_LAYER_SERIES,
            FIGURE_METRICS,
            looks_of(ONE_LAYER_SERIES, pairs=True),
        )
    ],
)
