"""C7 and C8: prediction-time statistics in a single layer of ResNet-20.

C7  figures 12 and A14: the usual network, with prediction statistics only in its last batch norm layer
C8  figures 13 and A13: a network whose only batch norm layer is before the final linear layer
"""

from __future__ import annotations

from ..claims import Claim, Measurement
from ..drawing import looks_of, severity_figure
from ..experiment import Experiment, FigureSpec
from ..measurements import gain, gain_share
from ..networks import ONE_LAYER
from ..plans.cifar10 import METHODS, ONE_BN_LAYER, STRATEGIES
from ..runs import Runs
from ..series import METRICS, PREDICTION, TRAIN, Series

MOST = 0.5
FIGURE_METRICS = ("ece", "accuracy", "brier")

LAST = Series("prediction BN in the last layer", STRATEGIES, "batch[layers=last]")
ONE_TRAIN = Series("one layer, train BN", ONE_BN_LAYER, "train", network=ONE_LAYER)
ONE = Series("one layer, prediction BN", ONE_BN_LAYER, "batch", network=ONE_LAYER)


def _last_layer_is_worse(runs: Runs) -> list[Measurement]:
    return [gain(runs, LAST, TRAIN, metric, side="below") for metric in METRICS]


def _last_layer_figures(runs: Runs) -> list[FigureSpec]:
    caption = "Boxes over the 19 corruptions. In the third series all layers but the last keep their train statistics."
    title = "Prediction statistics in the last layer only"
    return [severity_figure(runs, "last-layer", title, caption, (TRAIN, PREDICTION, LAST), FIGURE_METRICS)]


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
            _last_layer_is_worse,
        ),
    ),
    make_figures=_last_layer_figures,
)


def _recovers_most(runs: Runs) -> list[Measurement]:
    what = "gain of one layer with prediction BN over train BN, as a share of the gain of all layers"
    gains = (ONE, TRAIN), (PREDICTION, TRAIN)
    return [gain_share(runs, what, *gains, metric, side="above", bound=MOST) for metric in METRICS]


def _does_not_recover_all(runs: Runs) -> list[Measurement]:
    return [gain(runs, PREDICTION, ONE, metric) for metric in METRICS]


def _one_layer_figures(runs: Runs) -> list[FigureSpec]:
    series = (TRAIN, PREDICTION, ONE_TRAIN, ONE)
    title = "One batch norm layer before the last linear layer"
    caption = "Boxes over the 19 corruptions, for networks with batch norm everywhere and with a single such layer."
    return [
        severity_figure(runs, "one-layer", title, caption, series, FIGURE_METRICS, looks_of(series, pairs=True)),
    ]


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
            _recovers_most,
        ),
        Claim(
            "C8.2",
            "figure 13",
            "It does not recover all of it.",
            "The usual network with prediction-time BN must be better on every metric.",
            _does_not_recover_all,
        ),
    ),
    make_figures=_one_layer_figures,
)
