"""The console of the commands, and the style of their tables and lists."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


def make_console(*, quiet: bool = False, soft_wrap: bool = False) -> Console:
    """The console of a command. With `soft_wrap` long lines are left to the terminal, for paths and sentences."""
    return Console(quiet=quiet, highlight=False, soft_wrap=soft_wrap)


def print_points(console: Console, sentences: Sequence[str]) -> None:
    """Sentences as a list."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for sentence in sentences:
        table.add_row("•", Text(sentence))
    console.print(table)


def new_table(*headings: str) -> Table:
    """An empty table in the style of all commands: columns of numbers, but for the first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table
