"""The numbers behind the figures as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from .frames import CLEAN, display_name, group_by_family, list_series, mean_values, rows_of_metric
from .metric_info import metric_info, sort_metrics


@dataclass(frozen=True)
class Column:
    """One column of a table as text; numbers are right-aligned and sorted by value."""

    heading: str
    cells: Sequence[str]
    is_number: bool = True


@dataclass(frozen=True)
class Table:
    """A table that a reader can sort."""

    caption: str
    columns: Sequence[Column]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def by_split(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per (series, corruption, severity), one column per metric; means over models and seeds."""
    keys = ["series", "corruption", "severity"]
    columns = {
        metric: mean_values(rows_of_metric(frame, metric)).set_index(keys)["value"]
        for metric in sort_metrics(frame["metric"])
    }
    table = pd.DataFrame(columns).reset_index()
    families = group_by_family(list(table["corruption"]))
    corruptions = [CLEAN, *(name for members in families.values() for name in members)]
    series = list(list_series(frame)["series"])
    positions = table.assign(
        series=table["series"].map(series.index), corruption=table["corruption"].map(corruptions.index)
    ).sort_values(["corruption", "severity", "series"])
    in_order: pd.DataFrame = table.loc[positions.index]
    return in_order


def by_severity(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per (series, severity), one column per metric; means over the corruptions."""
    table = by_split(frame)
    series = list(list_series(frame)["series"])
    means = table.drop(columns="corruption").groupby(["series", "severity"], as_index=False).mean()
    position = means["series"].map(series.index)
    in_order: pd.DataFrame = (
        means.assign(position=position).sort_values(["position", "severity"]).drop(columns="position")
    )
    return in_order


def metric_table(frame: pd.DataFrame, caption: str) -> Table:
    """The table of a frame from `by_split` or `by_severity`, with the units in the headings."""
    return Table(caption, [_column(str(name), frame[name].tolist()) for name in frame.columns])


def _column(name: str, values: Sequence[object]) -> Column:
    if name in ("series", "corruption", "severity"):
        return Column(name, [display_name(str(value)) for value in values], is_number=name == "severity")
    info = metric_info(name)
    return Column(
        f"{info.label}, %" if info.percent else info.label, [info.number(float(str(value))) for value in values]
    )
