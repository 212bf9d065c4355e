"""The memory that the kernels of one call of a model work in, on one CUDA stream.

To allocate memory takes the host 4 µs and more, as long as half a launch. So the layers of a call share what they need:
kernels of a stream follow each other, and one layer is done with its scratch memory before the next one begins.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LAYERS = 64
"""For so many layers at a time there are zeros."""
_TABLES = 1 << 15
"""Numbers of single precision that are allocated at a time for what stays when a layer is done."""


class CallMemory:
    """It is kept until the call has ended; the tables as long as somebody keeps one."""

    def __init__(self, x: Tensor, stream: int) -> None:
        self._like, self._stream = torch.empty(0, dtype=torch.float32, device=x.device), stream
        self._zeros: dict[int, tuple[Tensor, int]] = {}
        self._scratch: Tensor | None = None
        self._tables: Tensor | None = None
        self._used = 0

    def zeros(self, count: int) -> int:
        """The address of so many zeros of 32 bits. One operation makes those of many layers."""
        memory, used = self._zeros.get(count, (None, _LAYERS))
        if memory is None or used == _LAYERS:
            memory, used = torch.zeros(_LAYERS, count, dtype=torch.int32, device=self._like.device), 0
        self._zeros[count] = memory, used + 1
        return memory.data_ptr() + used * count * 4

    def scratch(self, count: int) -> int:
        """The address of memory for so many numbers of single precision, until the next layer."""
        if self._scratch is None or self._scratch.numel() < count:
            self._scratch = self._like.new_empty(count)
        return self._scratch.data_ptr()

    def tables(self, count: int) -> tuple[Tensor, int]:
        """Memory for so many numbers that nobody else writes to: a vector, and where in it they begin."""
        if self._tables is None or self._tables.numel() - self._used < count:
            self._tables, self._used = self._like.new_empty(max(count, _TABLES)), 0
        begin = self._used
        self._used = begin + count
        return self._tables, begin
