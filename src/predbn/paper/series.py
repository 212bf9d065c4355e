"""Which rows of which run make one series of a figure, and how two series are paired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from predbn.common import NotMeasured
from predbn.evaluation import Model, Setting

from .networks import WITH_BATCH_NORM, missing
from .runs import Runs

__all__ = ["CLEAN", "EVERY", "METRICS", "SHIFTED", "TOP", "Over", "Series", "Severities", "paired"]

METRICS = ("accuracy", "brier", "ece")

Over = Literal["corruption", "model", "seed"]
"""What the values of a box or an interval are spread over."""

Severities = Sequence[int] | None
CLEAN: Severities = (0,)
TOP: Severities = (5,)
EVERY: Severities = (0, 1, 2, 3, 4, 5)
SHIFTED: Severities = None
"""Every severity but 0."""


@dataclass(frozen=True)
class Series:
    """One method and strategy of some networks, on single corruptions or on a mixture of them, in one order."""

    label: str
    plan: str
    strategy: str
    method: str = "vanilla"
    network: str = WITH_BATCH_NORM
    batch_size: int | Literal["all"] | None = None
    mixture: str | None = None
    order: str | None = None

    @property
    def over(self) -> Over:
        """What its values are spread over: a mixture of corruptions is drawn several times."""
        return "corruption" if self.mixture is None else "seed"

    def values(self, runs: Runs, metric: str, severities: Severities = EVERY) -> pd.DataFrame:
        """The rows of one metric at some severities; NotMeasured where there is none, with the reason."""
        rows = self._rows(runs)
        wanted = rows["severity"] > 0 if severities is None else rows["severity"].isin(list(severities))
        part: pd.DataFrame = rows[(rows["metric"] == metric) & wanted]
        if part.empty:
            raise NotMeasured(f"the run of the plan {self.plan} lacks severities that this needs for {self.label}")
        return part

    def is_there(self, runs: Runs) -> bool:
        """Whether it was measured at all."""
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
        if self.order is not None:
            rows = rows[rows["order"] == self.order]
        if rows.empty:
            lacking = missing(Model(f"{self.network}/0"))
            where = f"the run of the plan {self.plan} has no {self.label}"
            raise NotMeasured(where if lacking is None else f"the zoo has no {lacking}")
        return rows


def paired(
    runs: Runs, series: Sequence[Series], metric: str, severities: Severities = SHIFTED, *, over: Over = "corruption"
) -> pd.DataFrame:
    """The values of several series side by side: one column a label, one row a corruption, network or seed.

    A row is the mean over everything else. Severities of one corruption are not independent of each other, so that
    an interval over 95 splits would be too narrow: they are averaged, and intervals are over the 19 corruptions.
    Where the series have networks in common only these are taken, so that like is compared with like.
    """
    parts = [each.values(runs, metric, severities) for each in series]
    common = set.intersection(*(set(part["model"].unique()) for part in parts))
    columns = {}
    for each, part in zip(series, parts, strict=True):
        part = part[part["model"].isin(common)] if common else part
        columns[each.label] = part.groupby(over)["value"].mean()
    table: pd.DataFrame = pd.DataFrame(columns).dropna()
    if table.empty:
        raise NotMeasured(f"{' and '.join(each.label for each in series)} have no {over} in common")
    return table
