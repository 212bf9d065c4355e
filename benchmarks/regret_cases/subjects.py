"""What is measured: a network with the data sets that it is tried on, and the cases that this makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from .data import load, related
from .networks import NETWORKS, trained
from .orders import ORDERS
from .shifts import Shift, shifted, shifts_of
from .split import NATURAL, Half

CLEAN = "clean"


def accuracy(outputs: Tensor, labels: Tensor) -> float:
    return 100 * (outputs.argmax(1) == labels).float().mean().item()


class Labelled(NamedTuple):
    """Test data. `classes`, from 0, tell which examples are alike, for orders other than mixed."""

    inputs: Tensor
    labels: Tensor
    classes: Tensor
    score: Callable[[Tensor, Tensor], float] = accuracy
    """Of the outputs and labels of all examples, in %."""


class Subject(NamedTuple):
    """A network, clean unlabelled inputs for its calibration, and test data by the title of its shift."""

    kind: str
    model: nn.Module
    clean: Tensor
    sets: dict[str, Callable[[], Labelled]]
    batch_size: int = 100
    """In all orders; of other sizes there are only mixed batches."""
    sizes: Sequence[int] = (1, 8, 32, 500)
    orders: Sequence[str] = tuple(ORDERS)
    calibrations: Sequence[int] = (1000, 100, 5000)
    """Numbers of clean examples, 0 for none; all but the first in a part of the cases."""


class Case(NamedTuple):
    order: str
    batch_size: int


def small(name: str, folder: Path, half: Half) -> Subject:
    """A network of `networks.py` with the clean, shifted and natural test data of one half."""
    network = NETWORKS[name]
    data = load(network.data, folder)

    def test_set(shift: Shift | None = None, seed: int = 0) -> Labelled:
        inputs = data.test if shift is None else shifted(data.test, shift, seed)
        return Labelled(inputs, data.test_labels, data.test_labels)

    sets: dict[str, Callable[[], Labelled]] = {CLEAN: test_set}
    for seed, (title, shift) in enumerate(shifts_of(data.test, half).items()):
        sets[title] = partial(test_set, shift, seed)
    for title, (inputs, labels) in related(network.data, folder).items():
        if NATURAL[title] == half:
            sets[title] = partial(Labelled, inputs, labels, labels)
    return Subject(network.kind, trained(name, folder), data.train, sets)


def cases(subject: Subject, title: str, calibration: int) -> list[Case]:
    """Of a data set: all of them with the first calibration, two with the others, and these on every third set."""
    if calibration == subject.calibrations[0]:
        in_orders = [Case(order, subject.batch_size) for order in subject.orders]
        return in_orders + [Case("mixed", size) for size in subject.sizes]
    if list(subject.sets).index(title) % 3:
        return []
    return [Case(order, subject.batch_size) for order in subject.orders if order in ("mixed", "sorted")]
