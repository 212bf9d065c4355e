"""Splits by name, and the order in which a stream visits their images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import EvaluationError
from predbn.data import CLEAN, choose_positions
from predbn.shifts import ATTACKS, Attack, orders

from .changing_shift import SETS, ChangingShift, corruptions_of


class Split(NamedTuple):
    """One corruption at one severity. "clean" has severity 0.

    The name of a `ChangingShift`, such as "mixed-5", is a corruption too: a stream then goes through several splits.
    """

    corruption: str
    severity: int

    def __str__(self) -> str:
        return f"{self.corruption} at severity {self.severity}" if self.severity else self.corruption


class Stream(NamedTuple):
    """The images that are predicted one after another: an order of pairs (split, position of the image).

    `numbers` says which of the `splits` each image is from. Both tensors are int64 with one value per image.
    """

    splits: list[Split]
    numbers: Tensor
    positions: Tensor


def resolve(
    shifts: Iterable[str],
    severities: Sequence[int],
    available: Sequence[str],
    *,
    has_clean: bool = True,
    registered: Sequence[str] = (),
) -> list[Split]:
    """The splits that the names in `shifts` stand for, without repetition, in the order of the names.

    "all" is the clean images and every corruption in `available`; "standard" and "extra" are the clean images and the
    corruptions of the published sets. Published data may come without clean images: these names then mean the
    corruptions only. `registered` are corruptions that users have registered: they are measured only if they are named,
    so that "all" and mixtures mean the same wherever they are computed.
    """
    splits: dict[Split, None] = {}
    for shift in shifts:
        corruptions: Sequence[str] = (shift,)
        if shift in SETS:
            corruptions = corruptions_of(shift, available)
            corruptions = (CLEAN, *corruptions) if has_clean else tuple(corruptions)
        for name in corruptions:
            if changing := ChangingShift.parse(name):
                changing.check_available(available)
            elif name != CLEAN and name not in available and name not in registered:
                has = (
                    ", ".join(available)
                    or "none: what a loader yields is prepared already, and only pixels are corrupted"
                )
                raise EvaluationError(f"shift {name!r} is not in the data, which has {has}.")
            if name == CLEAN and not has_clean:
                raise EvaluationError("the data has no clean images: name them with --clean.")
            splits |= dict.fromkeys(Split(name, severity) for severity in ((0,) if name == CLEAN else severities))
    return list(splits)


def make_stream(split: Split, visited: Tensor, index: Tensor, available: Sequence[str], seed: int) -> Stream:
    """The stream of a split: the images at the positions `visited`, of data with this `index`.

    A shift that changes gives each of them one of several splits; one that goes through them in turn visits all images
    once for each split, in the same order.
    """
    shift = ChangingShift.parse(split.corruption)
    if shift is None:
        return Stream([split], torch.zeros_like(visited), visited)
    splits = [Split(*drawn) for drawn in shift.splits(split.severity, available, seed)]
    numbers, places = shift.assign(len(splits), index[visited], seed)
    return Stream(splits, numbers, visited[places])


def positions(order: str, labels: Tensor, seed: int, images: int | None = None) -> Tensor:
    """The positions that a stream visits, int64.

    With `images`, only that many of them: drawn without replacement, and depending only on their number, so that all
    orders and seeds use the same images.
    """
    chosen = choose_positions(len(labels), images).numpy()
    return torch.from_numpy(chosen[_ordered(order, labels.cpu().numpy()[chosen], seed)])


def check_order(order: str) -> None:
    _ordered(order, np.zeros(0, dtype=np.int64), 0)


def attack_of(order: str) -> Attack | None:
    """The attack that an order such as "attacked:everyone" names; None for other orders."""
    kind, _, name = order.partition(":")
    if kind != "attacked":
        return None
    if name not in ATTACKS:
        known = " or ".join(f"attacked:{name}" for name in ATTACKS)
        raise EvaluationError(f"order {order!r} names no attack that is known: use {known}.")
    return ATTACKS[name]


def _ordered(order: str, labels: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    if order == "official":
        return np.arange(len(labels))
    if order == "shuffled" or attack_of(order) is not None:
        return orders.shuffled(len(labels), seed=seed)
    if order == "by_class":
        return orders.by_class(labels, seed=seed)
    kind, _, number = order.partition(":")
    if kind not in _WITH_NUMBER:
        known = "official, shuffled, by_class, dirichlet:0.1, markov:0.95, attacked:targeted or attacked:everyone"
        raise EvaluationError(f"order {order!r} is not known: use {known}.")
    make, needed = _WITH_NUMBER[kind]
    try:
        return make(labels, float(number), seed=seed)
    except ValueError:
        raise EvaluationError(f"order {order!r} needs {needed}.") from None


_WITH_NUMBER: dict[str, tuple[Callable[..., npt.NDArray[np.int64]], str]] = {
    "dirichlet": (orders.dirichlet, "a number above 0: write it as in dirichlet:0.1"),
    "markov": (orders.markov, "a probability below 1: write it as in markov:0.95"),
}
