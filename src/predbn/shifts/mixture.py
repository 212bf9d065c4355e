"""Streams that mix several kinds of shift.

Statistics of a batch describe its images well only if these are of one kind. A mixture, in which each image draws its
own kind, is the hard case for prediction-time batch normalisation. A Markov chain of kinds is in between: several
images of one kind, then several of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from predbn.common import Draws, ShiftError

from .corrupt import Batch, Index, check_index, corrupt
from .orders import check_stay


def draw_kinds(count: int, *, seed: int, index: Index) -> Tensor:
    """For each image, which of `count` kinds it gets: int64 [N], all kinds equally likely.

    The kind of an image depends only on the seed and on its index in the data set.
    """
    return Draws(seed, "mixture", 0, check_index(index, len(index))).integers(0, count)


def chain_kinds(count: int, stay: float, *, seed: int, length: int) -> Tensor:
    """For each image of a stream, which of `count` kinds it gets, as a Markov chain: int64 [length].

    The first kind may be any. Then P(k → k) = stay and P(k → j) = (1 − stay)/(count − 1), so that all kinds have the
    same share of a long stream. 1/count gives independent draws.
    """
    check_stay(stay)
    draws = Draws(seed, "chain of kinds", 0, torch.arange(length))
    moves = torch.where(draws.uniform() < stay, 0, draws.integers(1, max(2, count)))
    moves[:1] = draws.integers(0, count)[:1]
    return moves.cumsum(0) % count


def mix(
    images: Batch,
    kinds: Sequence[tuple[str, int]],
    *,
    seed: int,
    index: Index,
    constants: Literal["auto", "cifar", "imagenet"] = "auto",
) -> tuple[Batch, Tensor]:
    """Apply one of the kinds (name, severity) to each image, all equally likely; also return which, int64 [N].

    Under its kind an image looks exactly as `corrupt` makes it look, so that a mixture can be taken apart again.
    """
    if not kinds:
        raise ShiftError("kinds is empty, but a mixture needs at least one (name, severity).")
    indices = check_index(index, len(images))
    kind_of = draw_kinds(len(kinds), seed=seed, index=indices)
    result: Any = torch.empty_like(images) if isinstance(images, Tensor) else np.empty_like(images)
    for kind, (name, severity) in enumerate(kinds):
        members = (kind_of == kind).nonzero().squeeze(1)
        rows: Any = members.to(images.device) if isinstance(images, Tensor) else members.numpy()
        result[rows] = corrupt(images[rows], name, severity, seed=seed, index=indices[members], constants=constants)
    return result, kind_of
