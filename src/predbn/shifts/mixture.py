"""Batches that mix several kinds of shift.

Statistics of a batch describe its images well only if these are of one kind. A mixture, in which each image draws its
own kind, is the hard case for prediction-time batch normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from predbn.common import Draws, ShiftError

from .corrupt import Batch, Index, check_index, corrupt


def draw_kinds(count: int, *, seed: int, index: Index) -> Tensor:
    """For each image, which of `count` kinds it gets: int64 [N], all kinds equally likely.

    The kind of an image depends only on the seed and on its index in the data set.
    """
    return Draws(seed, "mixture", 0, check_index(index, len(index))).integers(0, count)


def mix(images: Batch, kinds: Sequence[tuple[str, int]], *, seed: int, index: Index) -> tuple[Batch, Tensor]:
    """Apply one of the kinds (name, severity) to each image, all equally likely; also return which, int64 [N].

    Under its kind an image looks exactly as `corrupt` makes it look, so that a mixture can be taken apart again.
    `images`, `seed` and `index` are those of `corrupt`.
    """
    if not kinds:
        raise ShiftError("kinds is empty, but a mixture needs at least one (name, severity).")
    indices = check_index(index, len(images))
    kind_of = draw_kinds(len(kinds), seed=seed, index=indices)
    result: Any = torch.empty_like(images) if isinstance(images, Tensor) else np.empty_like(images)
    for kind, (name, severity) in enumerate(kinds):
        members = (kind_of == kind).nonzero().squeeze(1)
        rows: Any = members.to(images.device) if isinstance(images, Tensor) else members.numpy()
        result[rows] = corrupt(images[rows], name, severity, seed=seed, index=indices[members])
    return result, kind_of
