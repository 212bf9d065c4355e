"""The progress bar of all commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

_PAUSE = 10.0
"""Seconds between two lines in a log."""

Progress = Callable[[int, int], object]
"""Called with how much is done and how much there is."""


class ProgressWithNote(Protocol):
    """Called with how much is done, how much there is (None if that is not known), and what was done last."""

    def __call__(self, done: float, total: float | None, note: str = "", /) -> object: ...


@contextmanager
def showing_progress(progress: bool | ProgressWithNote | None, what: str) -> Iterator[ProgressWithNote | None]:
    """What the argument `progress` of a Python function stands for: a function, or whether to show a bar.

    The bar is drawn on the standard error, on a terminal or in a notebook only, so that a log has no traces of it.
    """
    if not isinstance(progress, bool):
        yield progress
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not progress or not (console.is_terminal or console.is_jupyter):
        yield None
        return
    with progress_bar(console, what) as report:
        yield report


@contextmanager
def progress_bar(console: Console, what: str, *, unit: str = "") -> Iterator[ProgressWithNote]:
    """A bar with counts, the time gone, the time left and a note; it disappears when the block ends.

    It appears at the first call, so that work which turns out to be done already shows nothing. Where nothing can be
    redrawn, as in a file or a pipe, the standard error gets a line every ten seconds instead.
    """
    if not (console.quiet or console.is_interactive or console.is_jupyter):
        yield _lines(what, unit)
        return
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.fields[what]}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.description}[/dim]"),
    )
    with Progress(*columns, console=console, transient=True, disable=console.quiet) as bar:
        task = bar.add_task("", total=None, visible=False, what=escape(what), counts="")

        def report(done: float, total: float | None, note: str = "", /) -> None:
            bar.update(
                task,
                completed=done,
                total=total,
                description=escape(note),
                counts=_counts(done, total, unit),
                visible=True,
            )

        yield report


def _lines(what: str, unit: str) -> ProgressWithNote:
    started = printed = time.monotonic()

    def report(done: float, total: float | None, note: str = "", /) -> None:
        nonlocal printed
        now = time.monotonic()
        if now - printed >= _PAUSE:
            printed = now
            parts = [_counts(done, total, unit), f"{now - started:.0f} s", *([note] if note else [])]
            print(f"{what}: {', '.join(parts)}", file=sys.stderr, flush=True)

    return report


def _counts(done: float, total: float | None, unit: str) -> str:
    counts = f"{int(done):,}" if total is None else f"{int(done):,}/{int(total):,}"
    return f"{counts} {unit}".rstrip()
