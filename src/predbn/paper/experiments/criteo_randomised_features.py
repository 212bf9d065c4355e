"""K1, figures 3c and A4: click prediction on Criteo with more and more randomised features.

Measured on real rows, on synthetic rows, and, which is not in the paper, on real rows of a later period without any
randomisation. The plans are run with data and networks in a folder of the user (`run_criteo`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from predbn.common import NotMeasured
from predbn.data import PERCENTAGES
from predbn.evaluation import Setting, read_table
from predbn.metrics import Interval, t_mean
from predbn.norm import Train
from predbn.report import FigureVariant, XAxis, metric_info

from ..claims import Measurement
from ..drawing import boxes_of, looks_of, means_by
from ..experiment import FigureSpec, experiment
from ..measurements import LEVEL
from ..plans.cifar10 import LARGE_EPS
from ..plans.criteo import LARGER_EPS, LATER, NETWORK, REAL, SYNTHETIC, UNSETTLED
from ..run_criteo import RESAMPLES_FILE
from ..runs import Runs
from ..series import STRATEGY_LABELS
from .methods import methods_of

KINDS = ("columns", "tokens")
"""Randomisations that change the distribution of a feature: that of the reference benchmark's code, and of its text."""

METRICS = ("auc", "brier")

Quantity = Callable[[pd.DataFrame], pd.Series]
"""A function of a table with columns (strategy, corruption, severity), in which higher is better, to one number per
row."""


@dataclass(frozen=True)
class CriteoScores:
    """One metric of a plan, signed so that higher is better.

    means      one row: the means over the networks
    values     one row per network; if `resampled`, one row per resample of rows and networks
    count      how many values the interval rests on, and `over` what they are
    """

    means: pd.DataFrame
    values: pd.DataFrame
    count: int
    over: str
    resampled: bool

    def interval(self, quantity: Quantity) -> Interval:
        """The quantity of the means, with its 95 % interval: Student's over networks, or that of the resamples."""
        values = quantity(self.values).to_numpy()
        if not self.resampled:
            return t_mean(values)
        low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return Interval(float(quantity(self.means).iloc[0]), float(low), float(high), LEVEL)


def scores_of(runs: Runs, plan: str) -> dict[str, CriteoScores]:
    """The scores of single networks without a temperature, by metric."""
    path = runs.plan_folder(plan) / RESAMPLES_FILE
    resamples = read_table(path).to_pandas() if plan in runs.measured and path.is_file() else None
    return {metric: _scores(runs, plan, metric, resamples) for metric in METRICS}


def _scores(runs: Runs, plan: str, metric: str, resamples: pd.DataFrame | None) -> CriteoScores:
    frame = runs.frame(plan)
    rows = frame[(frame["method"] == "vanilla") & (frame["metric"] == metric) & (frame["network"] == NETWORK)]
    if rows.empty:
        raise NotMeasured(f"the results of the plan {plan} have no {metric_info(metric).label} of {NETWORK}")
    columns, sign = ["strategy", "corruption", "severity"], metric_info(metric).sign
    by_network = sign * rows.astype({"strategy": str}).pivot_table(
        index="model", columns=columns, values="value", aggfunc="mean"
    )
    means = by_network.mean().to_frame().T
    if resamples is None:
        return CriteoScores(means, by_network, len(by_network), "networks", False)
    values = resamples[resamples["metric"] == metric].pivot(index="resample", columns=columns, values="value")
    count = runs[plan].card["data"]["rows"]
    return CriteoScores(means, sign * values.sort_index(axis=1), count, f"rows, {len(by_network)} networks", True)


def loss(values: pd.DataFrame, strategy: str, kind: str, percentages: tuple[int, ...]) -> pd.Series:
    """The score at 0 % minus the mean score at some percentages of randomised features."""
    clean = strategy, "clean", 0
    shifted = [(strategy, kind, level) for level in percentages if (strategy, kind, level) in values.columns]
    if not shifted or clean not in values.columns:
        raise NotMeasured(f"the results do not have {kind} with {strategy}")
    difference: pd.Series = values[clean] - values[shifted].mean(axis=1)
    return difference


def _degrades(plan: str, runs: Runs) -> list[Measurement]:
    scores = scores_of(runs, plan)
    return [
        _measurement(
            f"{metric_info(metric).label}: loss of {label} with 95 % randomised, {kind}",
            scores[metric],
            partial(loss, strategy=strategy, kind=kind, percentages=PERCENTAGES[-1:]),
        )
        for kind in KINDS
        for metric in METRICS
        for strategy, label in STRATEGY_LABELS
    ]


def _loses_less(plan: str, runs: Runs, train: str = "train", label: str = "train BN") -> list[Measurement]:
    """How much less prediction-time BN loses than train BN, averaged over all percentages."""

    def difference(values: pd.DataFrame, kind: str) -> pd.Series:
        return loss(values, train, kind, PERCENTAGES) - loss(values, "batch", kind, PERCENTAGES)

    scores = scores_of(runs, plan)
    return [
        _measurement(
            f"{metric_info(metric).label}: how much less prediction BN loses than {label}, {kind}",
            scores[metric],
            partial(difference, kind=kind),
        )
        for kind in KINDS
        for metric in METRICS
    ]


def _better_later(runs: Runs) -> list[Measurement]:
    def difference(values: pd.DataFrame) -> pd.Series:
        better: pd.Series = values["batch", "clean", 0] - values["train", "clean", 0]
        return better

    return [
        _measurement(f"{metric_info(metric).label}: gain of prediction BN on later rows", scores, difference)
        for metric, scores in scores_of(runs, LATER).items()
    ]


def _measurement(what: str, scores: CriteoScores, quantity: Quantity) -> Measurement:
    return Measurement(what, scores.interval(quantity), "above", 0.0, scores.count, scores.over)


def _label(strategy: str) -> str:
    setting = Setting.parse(strategy)
    label = "train BN" if isinstance(setting.strategy, Train) else "prediction BN"
    return label if setting.eps is None else f"{label}, eps {setting.eps}"


def _figure(plan: str, rows: str) -> FigureSpec:
    return FigureSpec(
        plan,
        f"Criteo with randomised features, {rows} rows",
        f"{rows.capitalize()} test rows. Boxes over the networks, each trained with another seed; there is one "
        "ensemble. Hollow boxes are train BN, filled boxes prediction-time BN. Columns: whole columns of a batch are "
        "replaced by random categories. Tokens: each category is replaced on its own. Marginals: each value is "
        "replaced by that of another row, which leaves the distribution of every feature unchanged.",
        ("metric", "randomised"),
        {
            (metric_info(metric).label, kind): partial(_boxes, plan=plan, metric=metric, kind=kind)
            for metric in ("brier", "auc", "ece")
            for kind in (*KINDS, "marginals")
        },
    )


def _boxes(runs: Runs, plan: str, metric: str, kind: str) -> FigureVariant:
    runs.frame(plan)  # raises NotMeasured
    methods = methods_of(plan, NETWORK, ("vanilla", "temperature", "ensemble"))
    series = [line for line in methods if line.is_measured(runs)]
    parts = []
    for line in series:
        rows = line.values(runs, metric, (0, *PERCENTAGES))
        parts.append(means_by(line, rows[rows["corruption"].isin(["clean", kind])], "severity", "model"))
    x_axis = XAxis("severity", "probability that a feature is randomised, %")
    return boxes_of(parts, metric, looks_of(series, pairs=True), x_axis=x_axis, over="model")


_less_than_larger_eps = partial(_loses_less, train=f"train[eps={LARGE_EPS}]", label=f"train BN, eps {LARGE_EPS}")

CRITEO = experiment(
    "K1",
    plans=(REAL, LATER, UNSETTLED, LARGER_EPS, SYNTHETIC),
    measures={
        1: partial(_degrades, REAL),
        2: partial(_loses_less, REAL),
        3: partial(_degrades, SYNTHETIC),
        4: partial(_loses_less, SYNTHETIC),
        5: _better_later,
        6: partial(_loses_less, UNSETTLED),
        7: partial(_less_than_larger_eps, LARGER_EPS),
        8: partial(_less_than_larger_eps, SYNTHETIC),
    },
    figures=[_figure(REAL, "real"), _figure(SYNTHETIC, "synthetic")],
)
