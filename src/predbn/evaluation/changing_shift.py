"""Shifts that change within a stream, by name.

| name | the shift of each image |
|---|---|
| `mixed-5` | one of five corruptions, drawn independently |
| `in_turn-standard` | all images under one corruption, then all images under the next: continual adaptation |
| `markov-all-0.85` | with probability 0.85 that of the image before, otherwise another, all equally often |

After the first dash stands which corruptions: a number of them, drawn with the seed, or `all`, `standard` or `extra`.
With `-levels` behind that, as in `mixed-5-levels`, the levels from 1 to the severity take part, each like a corruption
of its own; otherwise the severity is the only level.

Together with an order, which is about classes, such a shift describes a whole stream. A Markov chain of shifts with a
Markov chain of classes (`markov:0.95`) is how Du et al. 2024 (UniTTA) generate streams, with these two probabilities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from predbn.common import EvaluationError, derive_seed
from predbn.shifts import draw_kinds, names, orders

SETS = ("all", "standard", "extra")
"""Names that stand for several corruptions."""
Change = Literal["mixed", "in_turn", "markov"]
_NAME = re.compile(rf"(mixed|in_turn|markov)-([1-9][0-9]*|{'|'.join(SETS)})(-levels)?(?:-(0|0?\.[0-9]+))?")


class ChangingShift(NamedTuple):
    """A shift that changes within a stream; `stay` is the probability of a Markov chain."""

    change: Change
    corruptions: str
    has_levels: bool
    stay: float | None

    @classmethod
    def parse(cls, name: str) -> ChangingShift | None:
        """The shift of that name; None if it is not the name of one that changes."""
        match = _NAME.fullmatch(name)
        if match and (match[1] == "markov") == (match[4] is not None):
            return cls(cast(Change, match[1]), match[2], bool(match[3]), float(match[4]) if match[4] else None)
        if name.startswith(("mixed-", "in_turn-", "markov-")):
            raise EvaluationError(
                f"shift {name!r} cannot be read: write it as in mixed-5, mixed-all-levels, in_turn-standard or "
                "markov-all-0.85, with a probability below 1."
            )
        return None

    def check_available(self, available: Sequence[str]) -> None:
        """Raise an error if the data does not have the corruptions."""
        name = f"shift '{self.change}-{self.corruptions}'"
        if self.corruptions not in SETS:
            if int(self.corruptions) > len(available):
                raise EvaluationError(f"{name} has more corruptions than the {len(available)} of the data.")
        elif missing := [name for name in corruptions_of(self.corruptions, available) if name not in available]:
            raise EvaluationError(f"{name} needs {missing[0]}, but the data has only {', '.join(available)}.")

    def splits(self, severity: int, available: Sequence[str], seed: int) -> list[tuple[str, int]]:
        """The corruptions and levels that take part. In turn they come in this order; drawn ones in a drawn order."""
        if self.corruptions in SETS:
            corruptions = list(corruptions_of(self.corruptions, available))
        else:
            drawn = orders.shuffled(len(available), seed=seed)[: int(self.corruptions)].tolist()
            corruptions = [sorted(available)[number] for number in drawn]
            if self.change != "in_turn":
                corruptions.sort()
        levels = range(1, severity + 1) if self.has_levels else (severity,)
        return [(corruption, level) for corruption in corruptions for level in levels]

    def assign(self, splits: int, index: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """The stream as pairs: which of that many splits, and which place in the `index` of the images, int64 each."""
        places = torch.arange(len(index))
        if self.change == "in_turn":
            return torch.arange(splits).repeat_interleave(len(index)), places.repeat(splits)
        if self.change == "mixed":
            return draw_kinds(splits, seed=seed, index=index), places
        # A chain that visits a fixed set of images gives a fixed share to each split too.
        numbers = np.arange(len(index)) % splits
        chain = orders.markov(numbers, cast(float, self.stay), seed=derive_seed(seed, "shifts"))
        return torch.from_numpy(numbers[chain]), places


def corruptions_of(name: str, available: Sequence[str]) -> Sequence[str]:
    """The corruptions that one of the `SETS` stands for: all of the data, or those of a published set."""
    return available if name == "all" else names(name)  # type: ignore[arg-type]
