"""Batches that mix several kinds of shift.

Statistics of a batch describe its images well only if these are of one kind. A mixture, in which each image draws its
own kind, is the hard case for prediction-time batch normalisation.
"""

from __future__ import annotations

from torch import Tensor

from predbn.common import Draws

from .corrupt import Index, check_index


def draw_kinds(count: int, *, seed: int, index: Index) -> Tensor:
    """For each image, which of `count` kinds it gets: int64 [N], all kinds equally likely.

    The kind of an image depends only on the seed and on its index in the data set.
    """
    return Draws(seed, "mixture", 0, check_index(index, len(index))).integers(0, count)
