"""In which order examples arrive: which of them form a batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Rows = NDArray[np.int64]

_CONCENTRATION = 0.1
"""Of the Dirichlet distribution that the shares of the classes in a burst are drawn from."""


def batches(labels: Tensor, order: str, size: int, count: int, seed: int) -> list[Rows]:
    """Indices of about `count` examples, in full batches, one at least; an example is in a batch once if there are
    enough of its class."""
    draws = np.random.default_rng(seed)
    number = max(min(count, len(labels)) // size, 1)
    return ORDERS[order](labels.numpy(), size, number, draws)


def _mixed(labels: Rows, size: int, number: int, draws: np.random.Generator) -> list[Rows]:
    return list(draws.permutation(len(labels))[: number * size].reshape(number, size))


def _sorted(labels: Rows, size: int, number: int, draws: np.random.Generator) -> list[Rows]:
    """One class after the other, in a random order of the classes; of all batches, `number` at equal distances."""
    position = draws.permutation(labels.max() + 1)
    permutation = draws.permutation(len(labels))
    in_order = permutation[np.argsort(position[labels[permutation]], kind="stable")]
    starts = np.linspace(0, len(labels) - size, number).astype(int)
    return [draws.permutation(in_order[start : start + size]) for start in starts]


def _bursts(labels: Rows, size: int, number: int, draws: np.random.Generator) -> list[Rows]:
    """Each batch has the classes in shares from a Dirichlet distribution."""
    classes = labels.max() + 1
    return [_drawn(labels, size, draws.dirichlet([_CONCENTRATION] * classes), draws) for _ in range(number)]


def _two_classes(labels: Rows, size: int, number: int, draws: np.random.Generator) -> list[Rows]:
    """Each batch has two classes, about half of it each."""
    chosen: list[Rows] = []
    for _ in range(number):
        shares = np.zeros(labels.max() + 1)
        shares[draws.choice(len(shares), 2, replace=False)] = 0.5
        chosen.append(_drawn(labels, size, shares, draws))
    return chosen


def _drawn(labels: Rows, size: int, shares: NDArray[np.float64], draws: np.random.Generator) -> Rows:
    parts = []
    for label, count in enumerate(draws.multinomial(size, shares)):
        members = np.flatnonzero(labels == label)
        if count:
            parts.append(draws.choice(members, count, replace=count > len(members)))
    return draws.permutation(np.concatenate(parts))


ORDERS: dict[str, Callable[[Rows, int, int, np.random.Generator], list[Rows]]] = {
    "mixed": _mixed,
    "bursts": _bursts,
    "sorted": _sorted,
    "two classes": _two_classes,
}
