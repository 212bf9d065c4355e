"""C8, figures 13 and A13: a network whose only batch norm stands before the final linear layer."""

from __future__ import annotations

from predbn.report import Panel, meaning

from ..claims import Claim, Measurement
from ..drawing import by_metric, looks_of, severity_boxes
from ..experiment import Experiment
from ..measure import gain, share, signed
from ..networks import ONE_LAYER
from ..runs import Runs
from ..series import METRICS, Series, paired
from .baseline import PREDICTION, TRAIN

__all__ = ["EXPERIMENT", "MOST"]

MOST = 0.5
ONE_TRAIN = Series("one layer, train BN", "one-layer", "train", network=ONE_LAYER)
ONE = Series("one layer, prediction BN", "one-layer", "batch", network=ONE_LAYER)
SERIES = (TRAIN, PREDICTION, ONE_TRAIN, ONE)


def _most(runs: Runs) -> list[Measurement]:
    found = []
    for metric in METRICS:
        table = signed(paired(runs, (TRAIN, PREDICTION, ONE), metric), metric)
        kept, gained = (table[each.label] - table[TRAIN.label] for each in (ONE, PREDICTION))
        what = f"{meaning(metric).label}: gain of one layer with prediction BN over train BN, of that of all layers"
        found.append(share(what, kept, gained, side="above", bound=MOST))
    return found


def _not_all(runs: Runs) -> list[Measurement]:
    return [gain(runs, PREDICTION, ONE, metric) for metric in METRICS]


def _draw(runs: Runs) -> list[Panel]:
    return [
        by_metric(
            "one-layer",
            "One batch norm layer before the last linear layer",
            "Boxes over the 19 corruptions, for networks with batch norm everywhere and with one such layer.",
            lambda metric: severity_boxes(runs, SERIES, metric, looks_of(SERIES, pairs=True)),
            ("ece", "accuracy", "brier"),
        )
    ]


EXPERIMENT = Experiment(
    id="C8",
    figure="figures 13 and A13",
    title="one batch norm layer before the last linear layer",
    plans=("methods", "one-layer"),
    claims=(
        Claim(
            "C8.1",
            "figure 13",
            "One batch norm layer before the final linear layer recovers most of what prediction-time BN gains.",
            "With prediction statistics it must gain, over the usual network with train BN, more than half of what "
            "the usual network gains with prediction statistics.",
            _most,
        ),
        Claim(
            "C8.2",
            "figure 13",
            "It does not recover all of it.",
            "The usual network with prediction-time BN must be better on every metric.",
            _not_all,
        ),
    ),
    draw=_draw,
)
