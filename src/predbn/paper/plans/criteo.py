"""The plans of K1, which use data and networks in a folder of the user (see `run_criteo`)."""

from __future__ import annotations

from dataclasses import replace

from predbn.evaluation import Model, Plan

from .base import CRITEO, PaperPlan, add_plans
from .cifar10 import LARGE_EPS

REAL, LATER, UNSETTLED, SYNTHETIC = "criteo", "criteo-later", "criteo-unsettled", "criteo-synthetic"
LARGER_EPS = "criteo-eps"
NETWORK = "criteo-mlp"

_REAL_PLAN = Plan(
    models=(Model(f"{NETWORK}/*"),),
    data="criteo",
    methods=("vanilla", "temperature", "ensemble"),
    strategies=("train", "batch"),
    orders=("official",),
    seeds=tuple(range(5)),
)
_SYNTHETIC_PLAN = replace(
    _REAL_PLAN, strategies=("train", "batch", f"train[eps={LARGE_EPS}]", f"batch[eps={LARGE_EPS}]"), seeds=(0,)
)


def _plan(name: str, what: str, full: Plan, quick: Plan | None = None) -> PaperPlan:
    return PaperPlan(name, what, full, quick or full, CRITEO)


CRITEO_PLANS = add_plans(
    _plan(
        REAL,
        "three methods with train and prediction-time BN on the test rows of Criteo under every randomisation, "
        "drawn five times",
        _REAL_PLAN,
    ),
    _plan(
        LATER,
        "the same networks on rows of a later period, with nothing randomised",
        replace(_REAL_PLAN, shifts=("clean",), seeds=(0,)),
    ),
    _plan(
        UNSETTLED,
        "like criteo, with networks whose running statistics had too few steps to converge",
        replace(_REAL_PLAN, methods=("vanilla",)),
    ),
    _plan(
        LARGER_EPS,
        "like criteo, with a larger eps at prediction time",
        replace(
            _REAL_PLAN, methods=("vanilla",), strategies=("batch", f"train[eps={LARGE_EPS}]", f"batch[eps={LARGE_EPS}]")
        ),
    ),
    _plan(
        SYNTHETIC,
        "like criteo, on synthetic rows, drawn once, also with a larger eps",
        _SYNTHETIC_PLAN,
        replace(_SYNTHETIC_PLAN, severities=(25, 95)),
    ),
)
