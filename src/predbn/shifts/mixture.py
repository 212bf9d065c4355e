"""Batches in which several kinds of shift meet.

Statistics taken from a batch describe it only as far as the batch is of one kind. A mixture of k kinds, each
image drawing its own, is what the method has to be tried on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from predbn.common import Draws, ShiftError

from .corrupt import Batch, Index, check_index, corrupt

__all__ = ["mix"]


def mix(
    images: Batch,
    kinds: Sequence[tuple[str, int]],
    *,
    seed: int,
    index: Index,
    constants: Literal["auto", "cifar", "imagenet"] = "auto",
) -> tuple[Batch, Tensor]:
    """Give each image one of the kinds (name, severity), all equally likely; also say which, int64 [N].

    The kind follows from the seed and the image's index alone, and under that kind the image looks just as
    `corrupt` makes it look, so that a mixture can be taken apart again.
    """
    if not kinds:
        raise ShiftError("kinds is empty, but a mixture needs at least one (name, severity).")
    indices = check_index(index, len(images))
    which = Draws(seed, "mixture", 0, indices).integers(0, len(kinds))
    result: Any = torch.empty_like(images) if isinstance(images, Tensor) else np.empty_like(images)
    for kind, (name, severity) in enumerate(kinds):
        mine = (which == kind).nonzero().squeeze(1)
        place: Any = mine.to(images.device) if isinstance(images, Tensor) else mine.numpy()
        result[place] = corrupt(images[place], name, severity, seed=seed, index=indices[mine], constants=constants)
    return result, which
