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
    """It is kept until the call has ended; the tables as long as somebody keeps one.

    Sizes and addresses of tensors are kept as numbers, because asking for them takes as long as the rest.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._zeros: dict[int, tuple[Tensor, int]] = {}
        self._scratch: Tensor | None = None
        self._tables = _numbers(0, device)
        self._scratch_size = self._scratch_address = 0
        self._tables_left = self._tables_begin = self._tables_address = 0

    def zeros(self, count: int) -> int:
        """The address of so many zeros of 32 bits. One operation makes those of many layers."""
        memory, used = self._zeros.get(count, (None, _LAYERS))
        if memory is None or used == _LAYERS:
            memory, used = torch.zeros(_LAYERS, count, dtype=torch.int32, device=self._device), 0
        self._zeros[count] = memory, used + 1
        return memory.data_ptr() + used * count * 4

    def scratch(self, count: int) -> int:
        """The address of memory for so many numbers of single precision, until the next layer."""
        if count > self._scratch_size:
            self._scratch, self._scratch_size = _numbers(count, self._device), count
            self._scratch_address = self._scratch.data_ptr()
        return self._scratch_address

    def tables(self, count: int) -> tuple[Tensor, int, int]:
        """Memory for so many numbers that nobody else writes to: a vector, where in it they begin, and the address."""
        if count > self._tables_left:
            size = max(count, _TABLES)
            self._tables = _numbers(size, self._device)
            self._tables_address = self._tables.data_ptr()
            self._tables_begin, self._tables_left = 0, size
        begin = self._tables_begin
        self._tables_begin += count
        self._tables_left -= count
        return self._tables, begin, self._tables_address + 4 * begin


def _numbers(count: int, device: torch.device) -> Tensor:
    return torch.empty(count, dtype=torch.float32, device=device)
