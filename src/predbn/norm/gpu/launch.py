"""Launch Triton kernels quickly.

Triton looks at every argument of every launch to find out which version of the kernel it needs: 30 µs and more for
twenty arguments, which is longer than most of these kernels run. The version depends on the types of the tensors, on
which whole numbers are 1 or multiples of 16, and on whether tensors begin at a multiple of 16 bytes. Here only few of
them are considered, because it takes up to seconds to compile a version, and the version that Triton has found is kept.
"""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from ..kernels import IS_INTERPRETED


def power_of_2(number: int) -> int:
    """The least power of two that is not smaller. Triton's own function takes several microseconds."""
    return 1 << max(0, number - 1).bit_length()


def ceil_div(number: int, size: int) -> int:
    """number / size, rounded up. Triton's own function takes several microseconds, too."""
    return -(-number // size)


class Kernel:
    """A Triton kernel whose parameters are tensors, whole numbers, floats and constants, in this order.

    `aligned` names those tensors that are faster to read if they begin at a multiple of 16 bytes, and those numbers
    that Triton should know to be multiples of 16, such as the length of a row.
    """

    def __init__(self, function: Callable[..., None], aligned: Sequence[str]) -> None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        general = [name for name in names if name not in (*aligned, *function.__annotations__)]
        self._aligned = [names.index(name) for name in aligned]
        self._function = triton.jit(function, do_not_specialize=general)
        self._compiled: dict[Any, Any] = {}

    def __call__(
        self,
        grid: tuple[int, int, int],
        tensors: Sequence[Tensor | None],
        numbers: Sequence[int],
        floats: Sequence[float] = (),
        constants: Sequence[Any] = (),
        warps: int = 4,
        stages: int = 3,
    ) -> None:
        """Launch it. A tensor that the kernel does not read with these constants may be None."""
        first = tensors[0]
        tensors = [first if tensor is None else tensor for tensor in tensors]
        is_aligned = [tensors[i].data_ptr() % 16 == 0 for i in self._aligned if i < len(tensors)]
        key = (first.device, warps, stages, *is_aligned, *(t.dtype for t in tensors), *numbers, *constants)
        compiled = self._compiled.get(key)
        if first.is_cuda and first.device.index != torch.cuda.current_device():
            with torch.cuda.device(first.device):
                self(grid, tensors, numbers, floats, constants, warps, stages)
        elif compiled is None:
            arguments = *tensors, *numbers, *floats, *constants
            compiled = self._function[grid](*arguments, num_warps=warps, num_stages=stages)
            if not IS_INTERPRETED:
                self._compiled[key] = compiled
        else:
            compiled[grid](*tensors, *numbers, *floats, *constants)


def kernel(aligned: Sequence[str] = ()) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a function."""
    return lambda function: Kernel(function, aligned)
