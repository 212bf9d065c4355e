"""What the commands print: progress with the time left, and tables that a person can read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pandas as pd

    from predbn.evaluation import Results

__all__ = [
    "Json",
    "Quiet",
    "comparison_table",
    "console_for",
    "mce_table",
    "new_table",
    "print_results",
    "progress_bar",
    "severity_table",
]

Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead, for programs.")]

METRICS = ("accuracy", "brier", "ece", "nll")


def console_for(quiet: bool) -> Console:
    """Where a command prints to."""
    return Console(quiet=quiet, highlight=False)


@contextmanager
def progress_bar(console: Console, what: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar with counts, the time gone and the time left; it goes away when it is full."""
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.description}[/dim]"),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, total: int, last: str) -> None:
            progress.update(task, completed=done, total=total, description=escape(last))

        yield report


def print_results(console: Console, results: Results, metrics: tuple[str, ...] | None = None) -> None:
    """Means by severity for every metric, and what they say in words."""
    from predbn.report import headline

    there = list(dict.fromkeys(results.frame["metric"]))
    shown = [metric for metric in metrics or METRICS if metric in there] or there
    console.print(severity_table(results.frame, shown))
    mce = results.mce()
    if len(mce):
        console.print(mce_table(mce))
    sentences = Table.grid(padding=(0, 1, 0, 0))
    for sentence in headline(results.frame):
        sentences.add_row("•", Text(sentence))
    console.print(sentences)


def severity_table(frame: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """Means over the corruptions: one row a series, one column a severity, the best of each column bold."""
    from predbn.report import by_severity
    from predbn.report import check_frame as checked

    severities = sorted(set(frame["severity"]))
    table = new_table()
    table.add_column("severity")
    for severity in severities:
        table.add_column("clean" if severity == 0 else str(severity), justify="right", no_wrap=True, min_width=5)
    for metric in metrics:
        summary = by_severity(checked(frame[frame["metric"] == metric]))
        _add_metric(table, metric, summary.pivot(index="series", columns="severity", values=metric), summary["series"])
    return table


def _add_metric(table: Table, metric: str, means: pd.DataFrame, order: Iterable[str]) -> None:
    from predbn.report import meaning

    known = meaning(metric)
    direction = f" [dim]({known.direction})[/dim]" if known.direction else ""
    table.add_row(f"[bold]{known.label}{', %' if known.percent else ''}[/bold]{direction}")
    best = (known.sign * means).max()
    series = list(dict.fromkeys(order))
    for name in series:
        cells = []
        for severity, value in means.loc[name].items():
            text = known.number(value)
            is_best = len(series) > 1 and known.better is not None and known.sign * value == best[severity]
            cells.append(f"[bold]{text}[/bold]" if is_best else text)
        table.add_row(f"  {escape(name)}", *cells, end_section=name == series[-1])


def mce_table(mce: pd.DataFrame) -> Table:
    """One row a series: the mean corruption error, and its interval over images where it has one."""
    from predbn.report import with_series

    table = new_table()
    for heading in ("mCE, % (lower is better)", "", "95 % interval over images"):
        table.add_column(heading, justify="right" if not heading else "left", no_wrap=True)
    for row in with_series(mce.assign(network=mce["model"])).to_dict("records"):
        interval = f"{row['low']:.1f} to {row['high']:.1f}" if row["low"] == row["low"] else "not kept: say --hits"
        table.add_row(f"  {escape(str(row['series']))}", f"{row['mce']:.1f}", interval)
    return table


def comparison_table(differences: pd.DataFrame, level: float) -> Table:
    """One row a metric and severity; a difference whose interval is without 0 is bold."""
    from predbn.report import meaning
    from predbn.report import order_metrics as ordered

    table = new_table()
    for heading in ("metric", "severity", "splits", "first", "second", "difference", f"{level:.0%} interval"):
        table.add_column(heading, justify="left" if heading == "metric" else "right", no_wrap=True)
    for metric in ordered(differences["metric"]):
        known = meaning(metric)
        rows = differences[differences["metric"] == metric].to_dict("records")
        for row in rows:
            is_one = row["splits"] == 1
            interval = "–" if is_one else f"{known.change(row['low'])} to {known.change(row['high'])}"
            change = known.change(row["difference"])
            differs = not is_one and (row["low"] > 0 or row["high"] < 0)
            table.add_row(
                f"{known.label}{', %' if known.percent else ''}" if row is rows[0] else "",
                "clean" if row["severity"] == "0" else row["severity"],
                str(row["splits"]),
                known.number(row["first"]),
                known.number(row["second"]),
                f"[bold]{change}[/bold]" if differs else change,
                interval,
                end_section=row is rows[-1],
            )
    return table


def new_table() -> Table:
    """A table in the house style."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False)
