from __future__ import annotations

import io

from rich.console import Console

from predbn.commands.training_progress import epochs_bar
from predbn.training import Epoch, Run

from ..training.tiny import TINY


def shown(numbers, *, rounds, epochs):
    """What the bar says when it ends: not on a terminal it is printed once."""
    console = Console(file=io.StringIO(), width=120)
    with epochs_bar(console, "batch", rounds=rounds, epochs=epochs) as on_epoch:
        for number in numbers:
            on_epoch([Epoch(Run(TINY, seed), number, 1.0, 0.5, 1.0, 0.25 * seed) for seed in (1, 2)])
    return console.file.getvalue()


def test_every_epoch_of_every_round_is_counted():
    line = shown([1, 2, 3] * 2, rounds=2, epochs=3)
    assert "6/6" in line
    assert "validation 37.5%" in line
    assert "left" in line


def test_epochs_done_before_are_taken_off_the_total():
    assert "4/4" in shown([3, 1, 2, 3], rounds=2, epochs=3)
    assert "3/3" in shown([3, 2, 3], rounds=2, epochs=3)


def test_a_round_of_one_epoch():
    assert "2/2" in shown([1, 1], rounds=2, epochs=1)
