"""The results of a run: tables and sentences for people, records for programs, and the report."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .console import new_table, print_points
from .shift_output import print_real_shifts, shift_record

if TYPE_CHECKING:
    import pandas as pd

    from predbn.evaluation import Results

METRICS = ("accuracy", "success", "auc", "brier", "ece", "nll")
"""The metrics that are shown by default, if they were measured."""


def to_records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON, which has neither NaN nor infinity: pandas writes null for them."""
    records: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=15))
    return records


def print_results(
    console: Console, results: Results, findings: Sequence[str] = (), metrics: Sequence[str] = METRICS
) -> None:
    """Print the comparisons of a real shift; or the means by severity of every metric, and what they say in words."""
    from predbn.recommendation import real_shifts, recommendation_sentences
    from predbn.report import headline

    if shifts := real_shifts(results):
        print_real_shifts(console, shifts, findings)
        return
    measured = list(dict.fromkeys(results.frame["metric"]))
    shown = [metric for metric in metrics if metric in measured] or measured
    console.print(severity_table(results.frame, shown))
    mce = results.mce()
    if len(mce):
        console.print(mce_table(mce))
    print_points(console, headline(results.frame))
    if sentences := recommendation_sentences(results):
        console.print(Text.assemble(("\n" + sentences[0], "bold"), " ", " ".join(sentences[1:])))


def results_record(results: Results, findings: Sequence[str]) -> dict[str, Any]:
    """The same for JSON."""
    from predbn.recommendation import real_shifts, recommendation_sentences

    if shifts := real_shifts(results):
        return {"comparisons": [shift_record(shift) for shift in shifts], "findings": findings}
    mce = to_records(results.mce())
    by_severity, sentences = to_records(results.by_severity()), recommendation_sentences(results)
    return {"by_severity": by_severity, **({"mce": mce} if mce else {}), "recommendation": sentences}


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
    from predbn.report import by_severity, check_results, metric_info

    severities = sorted(set(frame["severity"]))
    table = new_table("severity", *("clean" if severity == 0 else str(severity) for severity in severities))
    for metric in metrics:
        summary, info = by_severity(check_results(frame[frame["metric"] == metric])), metric_info(metric)
        series = list(dict.fromkeys(summary["series"]))
        means = summary.pivot(index="series", columns="severity", values=metric).reindex(columns=severities)
        direction = f" [dim]({info.direction})[/dim]" if info.direction else ""
        table.add_row(f"[bold]{info.label}{', %' if info.percent else ''}[/bold]{direction}")
        best = (info.sign * means).max() if len(series) > 1 and info.better is not None else {}
        for name in series:
            cells = [
                f"[bold]{info.number(value)}[/bold]" if info.sign * value == best.get(severity) else info.number(value)
                for severity, value in means.loc[name].items()
            ]
            table.add_row(f"  {escape(name)}", *cells, end_section=name == series[-1])
    return table


def mce_table(mce: pd.DataFrame) -> Table:
    """One row per series: the mean corruption error, and its interval over images if there is one."""
    from predbn.report import add_series

    table = new_table("mCE, % (lower is better)", "", "95 % interval over images")
    for row in add_series(mce.assign(network=mce["model"])).to_dict("records"):
        interval = f"{row['low']:.1f} to {row['high']:.1f}" if not math.isnan(row["low"]) else "not kept: use --hits"
        table.add_row(f"  {escape(str(row['series']))}", f"{row['mce']:.1f}", interval)
    return table


def comparison_table(differences: pd.DataFrame) -> Table:
    """One row per metric and severity; a difference whose interval does not contain 0 is bold."""
    from predbn.report import metric_info, sort_metrics

    table = new_table("metric", "severity", "splits", "first", "second", "difference", "95 % interval")
    table.padding = (0, 1, 0, 0)
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
