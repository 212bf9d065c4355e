"""What `predbn evaluate --reference` prints: the answer, the Python for it, the table, the reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .console import new_table, print_points

if TYPE_CHECKING:
    from predbn.recommendation import RealShift, StrategyOnShift


def print_real_shifts(console: Console, shifts: Sequence[RealShift], findings: Sequence[str]) -> None:
    """Print all comparisons of a run, each beginning with the recommendation."""
    from predbn.recommendation import python_lines, real_shift_sentences

    for shift in shifts:
        if len(shifts) > 1:
            console.print(Text(f"\n{shift.name}", style="dim"))
        answer, *reasons = real_shift_sentences(shift)
        console.print(Text(answer, style="bold"))
        for line in python_lines(shift):
            console.print(Text(f"    {line}"), soft_wrap=True)
        console.print(_strategies(shift))
        print_points(console, reasons)
    print_points(console, findings)


def _strategies(shift: RealShift) -> Table:
    """The table of the report with the columns that fit a terminal."""
    from predbn.report import strategies_table

    table, of_report = new_table(), strategies_table(shift)
    table.padding = (0, 1, 0, 0)
    columns = [column for column in of_report.columns if column.shown != "full"]
    rows = [
        [f"{cell.text} ({cell.note})" if cell.note else cell.text for cell in row if cell.column.shown != "full"]
        for row in of_report.rows
    ]
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        # The table fits 80 columns: a heading is as wide as its cells, or as its longest word.
        heading = textwrap.fill(column.heading, max(map(len, cells)), break_long_words=False).replace(",\n", "\n")
        table.add_column(heading, justify="right" if column.is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def shift_record(shift: RealShift) -> dict[str, Any]:
    """A comparison as plain data, for JSON."""
    from predbn.recommendation import python_lines, real_shift_sentences

    recommendation = shift.recommendation
    return {
        **shift.keys,
        "recommended": None if recommendation is None else recommendation.strategy,
        "batch_size": None if recommendation is None else recommendation.batch_size,
        "why": None if recommendation is None else recommendation.why,
        "sentences": real_shift_sentences(shift),
        "python": python_lines(shift),
        "strategies": [_record(strategy) for strategy in shift.strategies],
    }


def _record(measured: StrategyOnShift) -> dict[str, Any]:
    def intervals(gains: Any) -> dict[str, Any]:
        return {
            name: {"gain": gain.estimate, **({"low": gain.low, "high": gain.high} if gain.low != float("-inf") else {})}
            for name, gain in gains.items()
        }

    return {
        "strategy": measured.strategy,
        "batch_size": measured.batch_size,
        **measured.metrics,
        "agreement": measured.agreement,
        "gains": intervals(measured.gains),
        "gains_on_reference": intervals(measured.on_reference),
    }
