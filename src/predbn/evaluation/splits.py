"""Splits by name, and the order in which a stream brings their images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import EvaluationError
from predbn.data import CLEAN, SEVERITIES
from predbn.shifts import find_corruption as find
from predbn.shifts import names, orders

from .tabular import PERCENTAGES, check_row_shift, is_tabular

__all__ = [
    "Split",
    "check_order",
    "check_severities",
    "check_shift",
    "mixed_kinds",
    "positions",
    "resolve",
    "severities_of",
]

_SETS = ("all", "standard", "extra")
_MIXED = re.compile(r"mixed-([1-9]\d*)")


class Split(NamedTuple):
    """One corruption at one severity; "clean" has severity 0, "mixed-5" gives each image one of five corruptions."""

    corruption: str
    severity: int

    def __str__(self) -> str:
        return f"{self.corruption} at severity {self.severity}" if self.severity else self.corruption


def severities_of(data: str) -> tuple[int, ...]:
    """All severities of the shifts of a plan's data."""
    return PERCENTAGES if is_tabular(data) else SEVERITIES


def check_shift(shift: str, data: str = "") -> None:
    """Refuse a word that stands for no shift of a plan's data."""
    if is_tabular(data):
        check_row_shift(shift)
    elif shift not in (*_SETS, CLEAN) and not _MIXED.fullmatch(shift):
        find(shift)


def resolve(
    shifts: Iterable[str], severities: Sequence[int], available: Sequence[str], *, has_clean: bool = True
) -> list[Split]:
    """The splits that words stand for, each once, in the order of the words.

    "all" is the clean images and every corruption that the data has; "standard" and "extra" are the clean images
    and those of the published sets. Published data may have no clean images: such a word then means the others.
    """
    found: dict[Split, None] = {}
    for shift in shifts:
        words: Sequence[str] = (shift,)
        if shift in _SETS:
            corruptions = available if shift == "all" else names(shift)  # type: ignore[arg-type]
            words = (CLEAN, *corruptions) if has_clean else tuple(corruptions)
        for word in words:
            mixed = _MIXED.fullmatch(word)
            if mixed and int(mixed[1]) > len(available):
                raise EvaluationError(f"shift {word!r} mixes more corruptions than the {len(available)} of the data.")
            if word != CLEAN and not mixed and word not in available:
                raise EvaluationError(f"shift {word!r} is not in the data, which has {', '.join(available)}.")
            if word == CLEAN and not has_clean:
                raise EvaluationError("the data has no clean images: name them with --clean.")
            found |= dict.fromkeys(Split(word, severity) for severity in ((0,) if word == CLEAN else severities))
    return list(found)


def mixed_kinds(split: Split, available: Sequence[str], seed: int) -> list[str] | None:
    """The corruptions that a mixed split is made of, drawn from the seed; None for a split of one kind."""
    mixed = _MIXED.fullmatch(split.corruption)
    if not mixed:
        return None
    drawn = orders.shuffled(len(available), seed=seed)[: int(mixed[1])]
    return [sorted(available)[number] for number in sorted(drawn.tolist())]


def check_order(order: str) -> None:
    """Refuse a word that stands for no order."""
    _ordered(order, np.zeros(0, dtype=np.int64), 0)


def positions(order: str, labels: Tensor, seed: int, images: int | None = None) -> Tensor:
    """The positions that a stream visits, int64.

    With `images`, only so many of them: a draw without replacement that depends on nothing but their number, so
    that every order and seed is about the same images.
    """
    count = len(labels)
    if images is not None and images > count:
        raise EvaluationError(f"the plan wants {images} images, but the data has {count}: ask for fewer.")
    chosen = np.arange(count) if images is None else np.sort(orders.shuffled(count, seed=0)[:images])
    return torch.from_numpy(chosen[_ordered(order, labels.cpu().numpy()[chosen], seed)])


def _ordered(order: str, labels: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.int64]:
    if order == "official":
        return np.arange(len(labels))
    if order == "shuffled":
        return orders.shuffled(len(labels), seed=seed)
    if order == "by_class":
        return orders.by_class(labels, seed=seed)
    kind, _, concentration = order.partition(":")
    if kind == "dirichlet":
        try:
            return orders.dirichlet(labels, float(concentration), seed=seed)
        except ValueError:
            raise EvaluationError(f"order {order!r} needs a number above 0: write it as in dirichlet:0.1.") from None
    raise EvaluationError(f"order {order!r} is not known: use official, shuffled, by_class or dirichlet:0.1.")


def check_severities(severities: Sequence[int], data: str = "") -> None:
    """Refuse what is no severity of a plan's data."""
    for severity in severities:
        if isinstance(severity, bool) or severity not in severities_of(data):
            known = f"one of the percentages {PERCENTAGES}" if is_tabular(data) else "a whole number from 1 to 5"
            raise EvaluationError(f"severity {severity!r} is not {known}.")
