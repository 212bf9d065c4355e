"""In which order an epoch visits the rows, without a list of all of them.

Windows of a million consecutive rows come in a random order, and the rows of a window in a random order: what is read
at a time stays within a few neighbouring shards, and memory does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from predbn.common import subseed

__all__ = ["epoch_batches"]

WINDOW = 1 << 20


def epoch_batches(rows: int, size: int, *, seed: int, epoch: int) -> Iterator[Tensor]:
    """Positions of the batches of one epoch, `size` each; what does not fill a batch at the end is left out."""
    generator = torch.Generator().manual_seed(subseed(seed, "criteo order", epoch) >> 1)
    rest = torch.empty(0, dtype=torch.int64)
    for window in torch.randperm(-(-rows // WINDOW), generator=generator).tolist():
        first = window * WINDOW
        drawn = torch.randperm(min(WINDOW, rows - first), generator=generator) + first
        drawn = torch.cat((rest, drawn))
        whole = len(drawn) // size * size
        yield from drawn[:whole].split(size)
        rest = drawn[whole:]
