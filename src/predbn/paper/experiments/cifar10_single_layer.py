"""C7 and C8: prediction-time statistics in a single layer of ResNet-20.

C7  figures 12 and A14: the usual network, with prediction statistics only in its last batch norm layer
C8  figures 13 and A13: a network whose only batch norm layer is before the final linear layer
"""

from __future__ import annotations

from ..claims import Claim
from ..drawing import looks_of, severity_figure
from ..experiment import Experiment
from ..measurements import gain_share, gains
from ..networks import ONE_LAYER
from ..plans.cifar10 import METHODS, ONE_BN_LAYER, STRATEGIES
from ..series import PREDICTION, TRAIN, Series

MOST = 0.5
FIGURE_METRICS = ("ece", "accuracy", "brier")

LAST = Series("prediction BN in the last layer", STRATEGIES, "batch[layers=last]")
ONE = Series("one layer, prediction BN", ONE_BN_LAYER, "batch", network=ONE_LAYER)
ONE_LAYER_SERIES = (TRAIN, PREDICTION, Series("one layer, train BN", ONE_BN_LAYER, "train", network=ONE_LAYER), ONE)


LAST_LAYER = Experiment(
    id="C7",
    figure="figures 12 and A14",
    title="prediction statistics in the last layer only",
    plans=(METHODS, STRATEGIES),
    claims=(
        Claim(
            "C7.1",
            "figure 12",
            "Prediction statistics in the last batch norm layer alone do worse than train BN.",
            "Over all 95 splits, on every metric.",
            gains(LAST, TRAIN, side="below", name="gain of prediction BN in the last layer alone"),
        ),
    ),
    make_figures=lambda runs: [
        severity_figure(
            runs,
            "last-layer",
            "Prediction statistics in the last layer only",
            "Boxes over the 19 corruptions. In the third series all layers but the last keep their train statistics.",
            (TRAIN, PREDICTION, LAST),
            FIGURE_METRICS,
        )
    ],
)


ONE_BATCH_NORM_LAYER = Experiment(
    id="C8",
    figure="figures 13 and A13",
    title="one batch norm layer before the last linear layer",
    plans=(METHODS, ONE_BN_LAYER),
    claims=(
        Claim(
            "C8.1",
            "figure 13",
            "One batch norm layer before the final linear layer recovers most of what prediction-time BN gains.",
            "With prediction statistics it must gain, over the usual network with train BN, more than half of what "
            "the usual network gains with prediction statistics.",
            gain_share(
                "gain of one layer with prediction BN over train BN, as a share of the gain of all layers",
                (ONE, TRAIN),
                (PREDICTION, TRAIN),
                side="above",
                bound=MOST,
            ),
        ),
        Claim(
            "C8.2",
            "figure 13",
            "It does not recover all of it.",
            "The usual network with prediction-time BN must be better on every metric.",
            gains(PREDICTION, ONE, name="gain of all layers over one layer, both with prediction BN"),
        ),
    ),
    make_figures=lambda runs: [
        severity_figure(
            runs,
            "one-layer",
            "One batch norm layer before the last linear layer",
            "Boxes over the 19 corruptions, for networks with batch norm everywhere and with a single such layer.",
            ONE_LAYER_SERIES,
            FIGURE_METRICS,
            looks_of(ONE_LAYER_SERIES, pairs=True),
        )
    ],
)
