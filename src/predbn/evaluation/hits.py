"""Which images were predicted right, a bit each: what an interval over images is made of.

Every split of a benchmark is of the same images, so that their errors go together, and an interval over images cannot
be had from the accuracies of splits alone. A bit an image is 1/8 of a byte: 95 splits of 50,000 images take 0.6 MB.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.metrics import ranks

__all__ = ["Hits", "unpack"]


class Hits:
    """Collects them in any order; `pack` gives them in the order of the images' indices."""

    def __init__(self) -> None:
        self._right: list[Tensor] = []
        self._index: list[Tensor] = []

    def update(self, probabilities: Tensor, labels: Tensor, index: Tensor) -> None:
        """Add a batch; a GPU is not waited for."""
        self._right.append(ranks(probabilities.double(), labels) == 0)
        self._index.append(index)

    def pack(self) -> bytes:
        """The bits, the first image being the first byte's highest."""
        index, right = (torch.cat(parts).cpu().numpy() for parts in (self._index, self._right))
        return np.packbits(right[np.argsort(index)]).tobytes()


def unpack(packed: bytes, images: int) -> npt.NDArray[np.bool_]:
    """What was packed, bool [images]."""
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=images).astype(bool)
