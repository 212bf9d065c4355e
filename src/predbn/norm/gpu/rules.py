"""What the kernels have to know about a strategy.

A strategy that can be computed by the kernels describes itself for one call of one layer by one of these
(`Strategy.rule`); the equations are those of its own file.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..calibration import Calibration
from ..statistics import Statistics


@dataclass(frozen=True)
class Mix:
    """reference + w·(batch − reference), for mean and variance alike.

    reference    [C], or [S, C] for S streams; None if the statistics are those of the batch
    weight       w; None if it is n/(n + N) with n examples in the batch
    source_size  N
    in_place     whether the result replaces the reference, which is what the streams remember
    """

    reference: Statistics | None = None
    weight: float | None = 1.0
    source_size: float = 0.0
    in_place: bool = False


@dataclass(frozen=True)
class Mixture:
    """Steps 1 to 5 of `auto`, with the numbers of its equations that depend on n:

        1/n + 1/M, or what takes its place     per_example/n + constant + own·Σ π_g²/M_g + uneven·u·Σ π_g² + few·Σ π_k²
        V²/(5·(n + 1))                         network/(n + 1)
        what may be a matter of classes        skew·(1 − 1/n)

    shares   π_g, [groups, G]; None without classes
    squares  Σ π_k², [groups, 1]
    doubt    u, [groups, 1]
    """

    clean: Calibration
    source: Statistics
    per_example: float
    constant: float
    network: float
    skew: float = 0.0
    own: float = 0.0
    uneven: float = 0.0
    few: float = 0.0
    shares: Tensor | None = None
    squares: Tensor | None = None
    doubt: Tensor | None = None

    def is_on(self, device: torch.device) -> bool:
        """Whether the classes are known on this device; a model may lie on several."""
        return all(t is None or t.device == device for t in (self.shares, self.squares, self.doubt))


@dataclass(frozen=True)
class StateColumns:
    """What S streams remember of one layer: columns of a matrix with a row per stream, [S, D].

    offsets   where the tensors of `PAST_KEYS` begin, as whole numbers of 32 bits; −1 for one that is not there
    """

    matrix: Tensor
    offsets: Tensor


PAST_KEYS = (
    "seen_mean", "seen_var", "counts", "new_mean", "new_var", "new_size", "mean", "var", "new_shares", "expected",
    "class_errors",
)  # fmt: skip
"""What the kernels read and write of the state of `auto_stream`, in the order of `StateColumns.offsets`."""


MOST_CHANNELS = 4096
"""How many channels a layer may have for `Past` and `Mixture`: one program has them all."""


@dataclass(frozen=True)
class Past:
    """`auto_stream`: the past of a stream combined with its batch, and steps 1 to 5 of `auto` with both.

    states       what the streams remember, and `results` where the new states go
    in_place     whether that is the same place
    has_past     whether they have statistics of earlier batches
    has_last     whether there is a batch to be added to these first
    has_shares   whether the classes of that batch were predicted
    is_expected  whether the classes of this batch are expected
    has_classes  whether classes count at all
    skew         what is subtracted from d because it may be a matter of classes is skew·(1 − 1/n)
    doubt        2·b: u times this is added to 1/n + 1/M
    """

    clean: Calibration
    source: Statistics
    momentum: float
    states: StateColumns
    results: StateColumns
    in_place: bool
    has_past: bool
    has_last: bool
    has_shares: bool
    is_expected: bool
    has_classes: bool
    network: float
    skew: float
    doubt: float

    @property
    def uses_last_classes(self) -> bool:
        """Whether the batch before is corrected for classes."""
        return self.has_classes and self.has_last and (self.has_shares or self.is_expected)


@dataclass(frozen=True)
class Fixed:
    """These statistics, [C], whatever the batch is. Not for several streams."""

    statistics: Statistics


Rule = Mix | Mixture | Past | Fixed


MOST_EXAMPLES = 1024
"""How many examples the kernels can bound: those of a group are sorted by one program."""


@dataclass(frozen=True)
class Bounds:
    """Bounded influence, as in `robust.py`.

    limit      c for many examples
    clean_var  the variance of clean values, [C]
    scatter    that of the means of clean examples relative to it, [C] or one number
    clipping   what clipping does to clean examples, [3, C]; None if it is not corrected
    evenness   by how much of it each group is corrected, [groups, 1]; None for all of it
    """

    limit: float
    clean_var: Tensor
    scatter: Tensor | float
    clipping: Tensor | None
    evenness: Tensor | None = None
