"""The numbers behind the figures as tables."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from .frames import display_name, list_series, mean_values, rows_of_metric, severity_label, sort_corruptions
from .metric_info import metric_info, sort_metrics

MAIN_METRICS = ("accuracy", "success", "auc", "brier", "ece")
"""The metrics of a long table that are shown at once; the others are shown on demand."""

Width = Literal["any", "wide", "full"]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    cells       as a reader sees them
    values      the numbers in them, for sorting and for the CSV file; None for a column of strings
    intervals   (low, high) of each value, NaN where there is none; None for a column without intervals
    notes       the intervals as a reader sees them
    shown       on "any" screen, on a "wide" one, or in the "full" table, which a reader asks for
    """

    heading: str
    cells: Sequence[str]
    values: Sequence[float] | None = None
    intervals: Sequence[tuple[float, float]] | None = None
    notes: Sequence[str] | None = None
    shown: Width = "any"

    @property
    def is_number(self) -> bool:
        """Numbers are right-aligned and sorted by value."""
        return self.values is not None


@dataclass(frozen=True)
class Cell:
    """One cell of a table: its text, the number that it is sorted by, and its interval in words."""

    text: str
    value: float | None
    note: str
    column: Column


@dataclass(frozen=True)
class Table:
    """A table that a reader can sort and download."""

    caption: str
    columns: Sequence[Column]

    @property
    def rows(self) -> Iterator[list[Cell]]:
        """The cells row by row."""
        for row in range(len(self.columns[0].cells)):
            yield [
                Cell(
                    column.cells[row],
                    column.values[row] if column.values is not None else None,
                    column.notes[row] if column.notes is not None else "",
                    column,
                )
                for column in self.columns
            ]

    @property
    def has_more(self) -> str:
        """What a screen may leave out at first: columns ("full" ones on every screen), intervals on a narrow one."""
        shown = {column.shown for column in self.columns}
        has_notes = any(any(column.notes or ()) for column in self.columns)
        return "full" if "full" in shown else "wide" if "wide" in shown or has_notes else ""

    @property
    def csv(self) -> str:
        """All columns with unrounded numbers; intervals are columns of their own."""
        columns: dict[str, Sequence[object]] = {}
        for column in self.columns:
            columns[column.heading] = column.cells if column.values is None else [_digits(v) for v in column.values]
            if column.intervals is not None:
                for bound, name in enumerate(("low", "high")):
                    columns[f"{column.heading} {name}"] = [_digits(interval[bound]) for interval in column.intervals]
        content = io.StringIO()
        writer = csv.writer(content, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return content.getvalue()

    @property
    def csv_address(self) -> str:
        """The CSV file as an address, so that a link downloads it without network and without a script."""
        return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(self.csv.encode()).decode()}"

    @property
    def csv_name(self) -> str:
        letters = "".join(letter if letter.isalnum() else " " for letter in self.caption.lower())
        return "-".join(letters.split()[:8]) + ".csv"


def _digits(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.8g}"


def metric_column(
    metric: str,
    values: Sequence[float],
    intervals: Sequence[tuple[float, float]] = (),
    *,
    heading: str | None = None,
    shown: Width = "any",
    are_changes: bool = False,
) -> Column:
    """A column of values of a metric, by default with its name and unit as heading; changes are written with a sign.

    A bound of an interval is NaN where there is no interval.
    """
    info = metric_info(metric)
    write = info.change if are_changes else info.number
    scale = 100 if info.percent else 1
    has_intervals = not all(math.isnan(low) for low, _ in intervals)
    separator = " to " if are_changes else "–"
    return Column(
        heading or (f"{info.label}, %" if info.percent else info.label),
        [write(float(value)) for value in values],
        values=[scale * float(value) for value in values],
        intervals=[(scale * low, scale * high) for low, high in intervals] if has_intervals else None,
        notes=["" if math.isnan(low) else write(low) + separator + write(high) for low, high in intervals]
        if has_intervals
        else None,
        shown=shown,
    )


def by_split(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per (series, corruption, severity), one column per metric; means over models and seeds."""
    keys = ["series", "corruption", "severity"]
    columns = {
        metric: mean_values(rows_of_metric(frame, metric)).set_index(keys)["value"]
        for metric in sort_metrics(frame["metric"])
    }
    table = pd.DataFrame(columns).reset_index()
    return _sort_rows(table, frame, ["corruption", "severity", "series"])


def by_severity(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per (series, severity), one column per metric; means over the corruptions."""
    means = by_split(frame).drop(columns="corruption").groupby(["series", "severity"], as_index=False).mean()
    return _sort_rows(means, frame, ["series", "severity"])


def _sort_rows(table: pd.DataFrame, frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Sort by several columns: series and corruptions in the order in which they are drawn."""
    order = {"series": list(list_series(frame)["series"]), "corruption": sort_corruptions(list(frame["corruption"]))}

    def rank(column: pd.Series) -> pd.Series:
        return column.map(order[str(column.name)].index) if column.name in order else column

    in_order: pd.DataFrame = table.sort_values(by, key=rank)
    return in_order


def severity_tables(frame: pd.DataFrame, intervals: pd.DataFrame) -> list[Table]:
    """A table for each metric: one row per series, one column per severity, means over the corruptions.

    `intervals` are those of the means, from `mean_intervals`.
    """
    means = by_severity(frame)
    names = list(dict.fromkeys(means["series"]))
    tables = []
    for metric in sort_metrics(frame["metric"]):
        info = metric_info(metric)
        cells = means.set_index(["severity", "series"])[metric]
        bounds = intervals[intervals["metric"] == metric].set_index(["severity", "series"])[["low", "high"]]
        columns = [Column("strategy", names)]
        for severity in sorted(set(means["severity"])):
            keys = [(severity, name) for name in names]
            pairs = list(bounds.reindex(keys).itertuples(index=False, name=None))
            columns.append(metric_column(metric, cells.reindex(keys), pairs, heading=severity_label(severity)))
        unit = ", %" if info.percent else ""
        direction = f" ({info.direction})" if info.direction else ""
        tables.append(Table(f"{info.title}{unit} by severity{direction}", columns))
    return tables


def split_table(frame: pd.DataFrame, caption: str) -> Table:
    """The table of a frame from `by_split`, with the units in the headings."""
    severities = [int(severity) for severity in frame["severity"]]
    metrics = [str(name) for name in frame.columns if name not in ("series", "corruption", "severity")]
    columns = [
        Column("corruption", [display_name(str(name)) for name in frame["corruption"]]),
        Column("severity", [severity_label(severity) for severity in severities], values=severities),
        Column("strategy", [str(name) for name in frame["series"]]),
    ]
    for metric in metrics:
        shown: Width = "any" if metric == metrics[0] else "wide" if metric in MAIN_METRICS else "full"
        columns.append(metric_column(metric, frame[metric].tolist(), shown=shown))
    return Table(caption, columns)
