"""Launch Triton kernels with little work for the host.

Triton looks at every argument of every launch to choose the version of the kernel, which takes 30 µs and more for
twenty arguments: longer than most of these kernels run. The version depends on the dtypes, on which integers are 1 or
multiples of 16, and on whether tensors are aligned to 16 bytes. Here only few of them are considered, because compiling
a version takes up to seconds, and the version that Triton has chosen is kept.
"""

# mypy: ignore-errors
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def power_of_2(number: int) -> int:
    """The smallest power of two that is at least `number`. Triton's own function takes several microseconds."""
    return 1 << max(0, number - 1).bit_length()


def ceil_div(number: int, size: int) -> int:
    """number / size, rounded up. Triton's own function takes several microseconds, too."""
    return -(-number // size)


class Kernel:
    """A Triton kernel whose parameters are tensors, integers, floats and constants, in this order.

    `aligned` names the tensors that are faster to read if they are aligned to 16 bytes, and the integers that Triton
    should know to be multiples of 16, such as the length of a row.
    """

    def __init__(self, function: Callable[..., None], aligned: Sequence[str]) -> None:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        general = [name for name in names if name not in (*aligned, *function.__annotations__)]
        self._aligned = [names.index(name) for name in aligned]
        self._function = triton.jit(function, do_not_specialize=general)
        self._versions: dict[Any, Any] = {}

    def __call__(
        self,
        grid: tuple[int, int, int],
        tensors: Sequence[Tensor | None],
        integers: Sequence[int],
        floats: Sequence[float] = (),
        constants: Sequence[Any] = (),
        warps: int = 4,
    ) -> None:
        """Launch it. A tensor that the kernel does not read with these constants may be None."""
        first = tensors[0]
        if first.is_cuda and first.device.index != torch.cuda.current_device():
            with torch.cuda.device(first.device):
                self(grid, tensors, integers, floats, constants, warps)
            return
        tensors = [first if tensor is None else tensor for tensor in tensors]
        is_aligned = [tensors[i].data_ptr() % 16 == 0 for i in self._aligned if i < len(tensors)]
        key = (first.device, warps, *is_aligned, *[tensor.dtype for tensor in tensors], *integers, *constants)
        version = self._versions.get(key)
        arguments = *tensors, *integers, *floats, *constants
        if version is None:  # the interpreter returns None
            options = {"num_warps": warps, "enable_fp_fusion": True}
            self._versions[key] = self._function[grid](*arguments, **options)
        else:
            version[grid](*arguments)


def kernel(aligned: Sequence[str] = ()) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a function."""
    return lambda function: Kernel(function, aligned)


@kernel()
def _smallest_kernel(x_ptr):
    tl.store(x_ptr, 1.0)


def launch_smallest_kernel(device: torch.device) -> None:
    """Find out whether kernels can be built and launched. Those of a layer take a second to build."""
    _smallest_kernel((1, 1, 1), (torch.empty(1, device=device),), ())


broken_devices: set[torch.device] = set()
"""Devices that kernels could not be built for."""


@cache
def can_be_built(device: torch.device) -> bool:
    """Whether kernels can be built for a device, which needs a C compiler and a GPU that Triton supports."""
    try:
        launch_smallest_kernel(device)
    except Exception as error:  # Triton raises many kinds
        broken_devices.add(device)
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"the GPU kernels of predbn cannot be built here ({reason}), so that strategies other than 'batch' take "
            "several times as long; the results are the same. Set the environment variable PREDBN_BACKEND= (empty) to "
            "use PyTorch alone without this warning",
            stacklevel=2,
        )
        return False
    return True
