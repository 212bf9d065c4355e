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

from .frames import CLEAN, display_name, group_by_family, list_series, mean_values, rows_of_metric, severity_label
from .metric_info import MetricInfo, capitalise, metric_info, sort_metrics

MAIN_METRICS = ("accuracy", "success", "auc", "brier", "ece")
"""The metrics of a long table that are shown at once; the others are shown on demand."""

Width = Literal["any", "wide", "full"]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    cells       as a reader sees them
    values      the numbers that they show: for sorting and for the CSV file; None for a column of text
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
    """One cell of a table: its text, the number that it is sorted by, and what stands below it."""

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
                for place, name in enumerate(("low", "high")):
                    columns[f"{column.heading} {name}"] = [_digits(bounds[place]) for bounds in column.intervals]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return text.getvalue()

    @property
    def csv_address(self) -> str:
        """The CSV file as an address, so that a link downloads it without network and without a script."""
        return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(self.csv.encode()).decode()}"

    @property
    def csv_name(self) -> str:
        """The name of the CSV file."""
        letters = "".join(letter if letter.isalnum() else " " for letter in self.caption.lower())
        return "-".join(letters.split()[:8]) + ".csv"


def _digits(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.8g}"


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
        of_metric = intervals[intervals["metric"] == metric]
        keys = zip(of_metric["severity"], of_metric["series"], strict=True)
        bounds = dict(zip(keys, zip(of_metric["low"], of_metric["high"], strict=True), strict=True))
        columns = [Column("strategy", names)]
        for severity in sorted(set(means["severity"])):
            values = [float(cells.get((severity, name), math.nan)) for name in names]
            pairs = [bounds.get((severity, name), (math.nan, math.nan)) for name in names]
            columns.append(_numbers(severity_label(severity), values, info, pairs))
        unit = ", %" if info.percent else ""
        direction = f" ({info.direction})" if info.direction else ""
        tables.append(Table(f"{capitalise(info.label)}{unit} by severity{direction}", columns))
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
        info = metric_info(metric)
        shown: Width = "any" if metric == metrics[0] else "wide" if metric in MAIN_METRICS else "full"
        heading = f"{info.label}, %" if info.percent else info.label
        columns.append(_numbers(heading, frame[metric].tolist(), info, shown=shown))
    return Table(caption, columns)


def _numbers(
    heading: str,
    values: Sequence[float],
    info: MetricInfo,
    intervals: Sequence[tuple[float, float]] | None = None,
    shown: Width = "any",
) -> Column:
    scale = 100 if info.percent else 1
    has_intervals = intervals is not None and not all(math.isnan(low) for low, _ in intervals)
    return Column(
        heading,
        [info.number(float(value)) for value in values],
        values=[scale * float(value) for value in values],
        intervals=[(scale * low, scale * high) for low, high in intervals or ()] if has_intervals else None,
        notes=[info.interval(low, high) for low, high in intervals or ()] if has_intervals else None,
        shown=shown,
    )
