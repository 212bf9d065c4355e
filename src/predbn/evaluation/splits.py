"""Splits by name, and the order in which a stream visits their images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import EvaluationError
from predbn.data import CLEAN
from predbn.shifts import names, orders

SETS = ("all", "standard", "extra")
"""Names that stand for several corruptions."""
_MIXED = re.compile(r"mixed-([1-9]\d*)")


class Split(NamedTuple):
    """One corruption at one severity; "clean" has severity 0, "mixed-5" gives each image one of five corruptions."""

    corruption: str
    severity: int

    def __str__(self) -> str:
        return f"{self.corruption} at severity {self.severity}" if self.severity else self.corruption


def resolve(
    shifts: Iterable[str], severities: Sequence[int], available: Sequence[str], *, has_clean: bool = True
) -> list[Split]:
    """The splits that the names in `shifts` stand for, without repetition, in the order of the names.

    "all" is the clean images and every corruption in `available`; "standard" and "extra" are the clean images and the
    corruptions of the published sets. Published data may come without clean images: these names then mean the
    corruptions only.
    """
    splits: dict[Split, None] = {}
    for shift in shifts:
        corruptions: Sequence[str] = (shift,)
        if shift in SETS:
            corruptions = available if shift == "all" else names(shift)  # type: ignore[arg-type]
            corruptions = (CLEAN, *corruptions) if has_clean else tuple(corruptions)
        for name in corruptions:
            mixed = _MIXED.fullmatch(name)
            if mixed and int(mixed[1]) > len(available):
                raise EvaluationError(f"shift {name!r} mixes more corruptions than the {len(available)} of the data.")
            if name != CLEAN and not mixed and name not in available:
                raise EvaluationError(f"shift {name!r} is not in the data, which has {', '.join(available)}.")
            if name == CLEAN and not has_clean:
                raise EvaluationError("the data has no clean images: name them with --clean.")
            splits |= dict.fromkeys(Split(name, severity) for severity in ((0,) if name == CLEAN else severities))
    return list(splits)


def is_mixture(shift: str) -> bool:
    """Whether the name is that of a mixture, such as "mixed-5"."""
    return _MIXED.fullmatch(shift) is not None


def mixed_kinds(split: Split, available: Sequence[str], seed: int) -> list[str] | None:
    """The corruptions of a mixed split, drawn with the seed; None if the split is not a mixture."""
    mixed = _MIXED.fullmatch(split.corruption)
    if not mixed:
        return None
    drawn = orders.shuffled(len(available), seed=seed)[: int(mixed[1])]
    return [sorted(available)[number] for number in sorted(drawn.tolist())]


def positions(order: str, labels: Tensor, seed: int, images: int | None = None) -> Tensor:
    """The positions that a stream visits, int64.

    With `images`, only that many of them: drawn without replacement, and depending only on their number, so that all
    orders and seeds use the same images.
    """
    count = len(labels)
    if images is not None and images > count:
        raise EvaluationError(f"the plan wants {images} images, but the data has {count}: ask for fewer.")
    chosen = np.arange(count) if images is None else np.sort(orders.shuffled(count, seed=0)[:images])
    return torch.from_numpy(chosen[_ordered(order, labels.cpu().numpy()[chosen], seed)])


def check_order(order: str) -> None:
    """Raise an error if there is no such order."""
    _ordered(order, np.zeros(0, dtype=np.int64), 0)


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
