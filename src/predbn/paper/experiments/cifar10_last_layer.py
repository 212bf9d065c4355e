"""C7, figures 12 and A14: prediction statistics in the last batch norm layer alone."""

from __future__ import annotations

from predbn.report import Panel

from ..claims import Claim, Measurement
from ..drawing import by_metric, severity_boxes
from ..experiment import Experiment
from ..measure import gain
from ..runs import Runs
from ..series import METRICS, Series
from .baseline import PREDICTION, TRAIN

__all__ = ["EXPERIMENT", "LAST"]

LAST = Series("prediction BN in the last layer", "strategies", "batch[layers=last]")
SERIES = (TRAIN, PREDICTION, LAST)


def _worse(runs: Runs) -> list[Measurement]:
    return [gain(runs, LAST, TRAIN, metric, side="below") for metric in METRICS]


def _draw(runs: Runs) -> list[Panel]:
    caption = "Boxes over the 19 corruptions. In the third series all layers but the last keep their train statistics."
    return [
        by_metric(
            "last-layer",
            "Prediction statistics in the last layer only",
            caption,
            lambda metric: severity_boxes(runs, SERIES, metric),
            ("ece", "accuracy", "brier"),
        )
    ]


EXPERIMENT = Experiment(
    id="C7",
    figure="figures 12 and A14",
    title="prediction statistics in the last layer only",
    plans=("methods", "strategies"),
    claims=(
        Claim(
            "C7.1",
            "figure 12",
            "Prediction statistics in the last batch norm layer alone do worse than train BN.",
            "Over all 95 splits, on every metric.",
            _worse,
        ),
    ),
    draw=_draw,
)
