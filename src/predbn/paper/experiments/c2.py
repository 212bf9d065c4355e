"""C2, figures 4a and A1 at severity 0: the clean test set, where the training statistics are the right ones."""

from __future__ import annotations

from predbn.report.panels import Panel

from ..claims import Claim, Measurement
from ..drawing import by_metric, looks_of, severity_boxes
from ..experiment import Experiment
from ..measure import gain
from ..runs import Runs
from ..series import CLEAN
from .baseline import PREDICTION, TRAIN
from .c1 import SERIES

__all__ = ["EXPERIMENT", "SLIGHTLY"]

SLIGHTLY = 0.02
SINGLE = tuple(each for each in SERIES if each.method != "ensemble")


def _worse(runs: Runs) -> list[Measurement]:
    return [
        gain(runs, PREDICTION, TRAIN, metric, CLEAN, over="model", side="below", where=" on clean images")
        for metric in ("accuracy", "brier")
    ]


def _slightly(runs: Runs) -> list[Measurement]:
    return [gain(runs, PREDICTION, TRAIN, "accuracy", CLEAN, over="model", bound=-SLIGHTLY, where=" on clean images")]


def _draw(runs: Runs) -> list[Panel]:
    looks = looks_of(SINGLE, pairs=True)
    return [
        by_metric(
            "clean",
            "The clean test set",
            "Boxes over the networks, each trained from another seed.",
            lambda metric: severity_boxes(runs, SINGLE, metric, looks, severities=CLEAN, over="model"),
            ("accuracy", "brier", "ece"),
        )
    ]


EXPERIMENT = Experiment(
    id="C2",
    figure="figures 4a and A1, severity 0",
    title="the clean test set",
    plans=("methods",),
    claims=(
        Claim(
            "C2.1",
            "figure A1",
            "On clean data prediction-time BN is worse in accuracy and Brier score.",
            "Pairs are networks, each with both strategies: there is only one clean test set.",
            _worse,
        ),
        Claim(
            "C2.2",
            "figure A1",
            "On clean data prediction-time BN is worse by a small amount only.",
            "We take two percentage points of accuracy as small: about the spread between training recipes.",
            _slightly,
        ),
    ),
    draw=_draw,
)
