"""A series of a figure: which rows of which results belong to it, and how two series are paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import Model, Setting

from .networks import WITH_BATCH_NORM, missing_weights
from .plans.cifar10 import METHODS
from .runs import Runs

METRICS = ("accuracy", "brier", "ece")

Over = Literal["corruption", "model", "seed"]
"""What the values of a box or an interval vary over."""

Severities = Sequence[int] | None
CLEAN: Severities = (0,)
TOP: Severities = (5,)
EVERY: Severities = (0, 1, 2, 3, 4, 5)
SHIFTED: Severities = None
"""Every severity except 0."""


@dataclass(frozen=True)
class Series:
    """One method and strategy on one kind of network.

    batch_size  all sizes of the plan by default; "all" is the largest one, a whole split
    mixture     a mixture of corruptions such as `mixed-5`; by default the rows are not restricted
    """

    label: str
    plan: str
    strategy: str
    method: str = "vanilla"
    network: str = WITH_BATCH_NORM
    batch_size: int | Literal["all"] | None = None
    mixture: str | None = None

    @property
    def over(self) -> Over:
        """What its values vary over: the seeds for a mixture, which is drawn several times, else the corruptions."""
        return "corruption" if self.mixture is None else "seed"

    def values(self, runs: Runs, metric: str, severities: Severities = EVERY) -> pd.DataFrame:
        """The rows of one metric at some severities; raises NotMeasured with the reason if there are none."""
        rows = self._rows(runs)
        selected = rows["severity"] > 0 if severities is None else rows["severity"].isin(list(severities))
        values: pd.DataFrame = rows[(rows["metric"] == metric) & selected]
        if values.empty:
            raise NotMeasured(f"the results of the plan {self.plan} do not have the severities needed for {self.label}")
        return values

    def mean(self, runs: Runs, metric: str, severities: Severities = SHIFTED) -> float:
        return float(self.values(runs, metric, severities)["value"].mean())

    def is_measured(self, runs: Runs) -> bool:
        """Whether there are any rows of this series."""
        try:
            return not self._rows(runs).empty
        except NotMeasured:
            return False

    def _rows(self, runs: Runs) -> pd.DataFrame:
        rows = runs.rows(self.plan, self.network, self.method, str(Setting.parse(self.strategy)))
        if self.batch_size is not None:
            size = runs.frame(self.plan)["batch_size"].max() if self.batch_size == "all" else self.batch_size
            rows = rows[rows["batch_size"] == size]
        if self.mixture is not None:
            rows = rows[rows["corruption"] == self.mixture]
        if rows.empty:
            missing = missing_weights(Model(f"{self.network}/0"))
            if missing is not None:
                raise NotMeasured(f"the zoo has no {missing}")
            raise NotMeasured(f"the results of the plan {self.plan} do not have {self.label}")
        return rows


TRAIN = Series("train BN", METHODS, "train")
PREDICTION = Series("prediction BN", METHODS, "batch")
"""The two series that most CIFAR-10 experiments compare."""

STRATEGY_LABELS = (("train", "train BN"), ("batch", "prediction BN"))


def paired(
    runs: Runs, series: Sequence[Series], metric: str, severities: Severities = SHIFTED, *, over: Over = "corruption"
) -> pd.DataFrame:
    """The values of several series side by side: one column per label, one row per corruption, network or seed.

    A value is the mean over everything else. The severities of one corruption are not independent, so an interval over
    95 splits would be too narrow: severities are averaged, and intervals are over the 19 corruptions. If the series
    have networks in common, only those are used, so that the same networks are compared.
    """
    parts = [line.values(runs, metric, severities) for line in series]
    common = set.intersection(*(set(part["model"].unique()) for part in parts))
    columns = {}
    for line, part in zip(series, parts, strict=True):
        part = part[part["model"].isin(common)] if common else part
        columns[line.label] = part.groupby(over)["value"].mean()
    table: pd.DataFrame = pd.DataFrame(columns).dropna()
    if table.empty:
        raise NotMeasured(f"{' and '.join(line.label for line in series)} have no {over} in common")
    return table
