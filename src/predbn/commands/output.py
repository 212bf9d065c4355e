"""What the commands print: the console, tables for people, records for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pandas as pd

    from predbn.evaluation import Results

METRICS = ("accuracy", "success", "auc", "brier", "ece", "nll")
"""The metrics that are shown by default, if they were measured."""


def make_console(*, quiet: bool = False, soft_wrap: bool = False) -> Console:
    """The console of a command. With `soft_wrap` long lines are left to the terminal, for paths and sentences."""
    return Console(quiet=quiet, highlight=False, soft_wrap=soft_wrap)


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has neither NaN nor infinity: pandas writes null for them."""
    records: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=15))
    return records


def print_results(console: Console, results: Results, metrics: Sequence[str] = METRICS) -> None:
    """Print the means by severity of every metric that was measured, and what they say in words."""
    from predbn.recommendation import recommendation_sentences
    from predbn.report import headline

    measured = list(dict.fromkeys(results.frame["metric"]))
    shown = [metric for metric in metrics if metric in measured] or measured
    console.print(severity_table(results.frame, shown))
    mce = results.mce()
    if len(mce):
        console.print(mce_table(mce))
    print_points(console, headline(results.frame))
    print_recommendation(console, recommendation_sentences(results))


def print_points(console: Console, sentences: Sequence[str]) -> None:
    """Sentences as a list."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        table.add_row("•", Text(sentence))
    console.print(table)


def print_recommendation(console: Console, sentences: Sequence[str]) -> None:
    """Print the answer in bold, and the reasons after it."""
    if sentences:
        console.print()
        console.print(Text.assemble((sentences[0], "bold"), " ", " ".join(sentences[1:])))


def write_report(path: Path, results: Results, findings: Sequence[str] = ()) -> None:
    """Write the HTML report of a run; that of a real shift has the findings of an examination."""
    from predbn.recommendation import is_real_shift, recommendation_sentences
    from predbn.report import write_results, write_shift

    if is_real_shift(results):
        write_shift(path, results, findings)
        return
    write_results(path, results, recommendation=recommendation_sentences(results))


def severity_table(frame: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """Means over the corruptions: one row per series, one column per severity, the best of each column in bold."""
    from predbn.report import by_severity, check_results

    severities = sorted(set(frame["severity"]))
    table = new_table()
    table.add_column("severity")
    for severity in severities:
        table.add_column("clean" if severity == 0 else str(severity), justify="right", no_wrap=True, min_width=5)
    for metric in metrics:
        summary = by_severity(check_results(frame[frame["metric"] == metric]))
        means = summary.pivot(index="series", columns="severity", values=metric).reindex(columns=severities)
        _add_metric_rows(table, metric, means, summary["series"])
    return table


def _add_metric_rows(table: Table, metric: str, means: pd.DataFrame, order: Iterable[str]) -> None:
    """One section of the table: the metric, then one row per series."""
    from predbn.report import metric_info

    info = metric_info(metric)
    direction = f" [dim]({info.direction})[/dim]" if info.direction else ""
    table.add_row(f"[bold]{info.label}{', %' if info.percent else ''}[/bold]{direction}")
    best = (info.sign * means).max()
    series = list(dict.fromkeys(order))
    for name in series:
        cells = []
        for severity, value in means.loc[name].items():
            text = info.number(value)
            is_best = len(series) > 1 and info.better is not None and info.sign * value == best[severity]
            cells.append(f"[bold]{text}[/bold]" if is_best else text)
        table.add_row(f"  {escape(name)}", *cells, end_section=name == series[-1])


def mce_table(mce: pd.DataFrame) -> Table:
    """One row per series: the mean corruption error, and its interval over images if there is one."""
    from predbn.report import add_series

    table = new_table()
    for heading in ("mCE, % (lower is better)", "", "95 % interval over images"):
        table.add_column(heading, justify="right" if not heading else "left", no_wrap=True)
    for row in add_series(mce.assign(network=mce["model"])).to_dict("records"):
        interval = f"{row['low']:.1f} to {row['high']:.1f}" if not math.isnan(row["low"]) else "not kept: use --hits"
        table.add_row(f"  {escape(str(row['series']))}", f"{row['mce']:.1f}", interval)
    return table


def comparison_table(differences: pd.DataFrame) -> Table:
    """One row per metric and severity; a difference whose interval does not contain 0 is bold."""
    from predbn.report import metric_info, sort_metrics

    table = new_table()
    table.padding = (0, 1, 0, 0)
    for heading in ("metric", "severity", "splits", "first", "second", "difference", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "metric" else "right", no_wrap=heading != "metric")
    for metric in sort_metrics(differences["metric"]):
        info = metric_info(metric)
        rows = differences[differences["metric"] == metric].to_dict("records")
        for row in rows:
            interval = "–" if math.isnan(row["low"]) else f"{info.change(row['low'])} to {info.change(row['high'])}"
            change = info.change(row["difference"])
            differs = row["low"] > 0 or row["high"] < 0
            table.add_row(
                f"{info.label}{', %' if info.percent else ''}" if row is rows[0] else "",
                "clean" if row["severity"] == "0" else row["severity"],
                str(row["splits"]),
                info.number(row["first"]),
                info.number(row["second"]),
                f"[bold]{change}[/bold]" if differs else change,
                interval,
                end_section=row is rows[-1],
            )
    return table


def new_table() -> Table:
    """An empty table in the style of all commands."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)
