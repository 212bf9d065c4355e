"""From float to the 256 grey levels."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["to_grey"]

_SLACK = 2.0**-10


def to_grey(values: Tensor) -> Tensor:
    """Clip to [0, 255] and truncate to uint8; `values` is overwritten.

    A value that is mathematically a whole grey level comes out of float32 arithmetic a little above or below
    it, and differently on each device. So anything less than 2⁻¹⁰ below a grey level counts as that level.
    The way over int32 is the faster one on a CPU.
    """
    return values.add_(_SLACK).clamp_(0.0, 255.0).to(torch.int32).to(torch.uint8)
