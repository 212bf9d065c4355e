"""What the commands print: progress with the time left, and tables that a person can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from predbn.evaluation import Results

__all__ = ["Json", "Quiet", "console_for", "print_results", "progress_bar", "severity_table"]

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
            progress.update(task, completed=done, total=total, description=last)

        yield report


def print_results(console: Console, results: Results, metrics: tuple[str, ...] = METRICS) -> None:
    """A table by severity for every metric, and what it says in words."""
    from predbn.report import headline

    for metric in metrics:
        if (results.frame["metric"] == metric).any():
            console.print(severity_table(results.frame, metric))
    for sentence in headline(results.frame):
        console.print(f"• {sentence}", markup=False)


def severity_table(frame: pd.DataFrame, metric: str) -> Table:
    """Means over the corruptions: one row a series, one column a severity, the best of each column bold."""
    from predbn.report.frames import checked
    from predbn.report.meanings import meaning
    from predbn.report.tables import by_severity

    known = meaning(metric)
    summary = by_severity(checked(frame[frame["metric"] == metric]))
    series = list(dict.fromkeys(summary["series"]))
    means = summary.pivot(index="series", columns="severity", values=metric)
    title = f"{known.label}{', %' if known.percent else ''}"
    direction = f" ({known.direction})" if known.direction else ""
    table = Table(
        title=f"[bold]{title}[/bold]{direction} by severity", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("method · strategy", no_wrap=True)
    for severity in means.columns:
        table.add_column("clean" if severity == 0 else str(severity), justify="right", no_wrap=True)
    best = (known.sign * means).max()
    for name in series:
        cells = []
        for severity in means.columns:
            value = means.loc[name, severity]
            text = known.number(value)
            is_best = len(series) > 1 and known.better is not None and known.sign * value == best[severity]
            cells.append(f"[bold]{text}[/bold]" if is_best else text)
        table.add_row(name, *cells)
    return table
