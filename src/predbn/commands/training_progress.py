"""A bar over the epochs of runs trained side by side, with the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from predbn.training import Epoch

__all__ = ["epochs_bar"]


@contextmanager
def epochs_bar(console: Console, what: str, *, rounds: int, epochs: int) -> Iterator[Callable[[list[Epoch]], None]]:
    """A bar for rounds of runs of so many epochs each; gives what `train_together` takes as `on_epoch`.

    A round that goes on from a checkpoint skips its first epochs: they are taken off the total.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, validation {task.fields[accuracy]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        total = rounds * epochs
        task = progress.add_task(what, total=total, accuracy="–")
        expected = 1

        def on_epoch(ended: list[Epoch]) -> None:
            nonlocal total, expected
            number = ended[0].epoch
            total -= max(0, number - expected)
            expected = number % epochs + 1
            mean = sum(epoch.validation_accuracy for epoch in ended) / len(ended)
            progress.update(task, advance=1, total=total, accuracy=f"{mean:.1%}")

        yield on_epoch
