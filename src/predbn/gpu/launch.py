"""Launch Triton kernels with little work for the host.

Triton looks at every argument of every launch to choose the version of the kernel, which takes 30 µs and more for
twenty arguments: longer than most of these kernels run. The version depends on the dtypes, on which integers are 1 or
multiples of 16, and on whether tensors are aligned to 16 bytes. Here only few integers and tensors are considered,
because compiling a version takes up to seconds. All arguments but the tensors are the same for all tensors of a shape:
they are bound once, and the version that Triton has chosen is kept with them.
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
        self.aligned = [names.index(name) for name in aligned if name.endswith("_ptr")]
        self.function = triton.jit(function, do_not_specialize=general)

    def bind(
        self,
        grid: tuple[int, int, int],
        integers: Sequence[int],
        floats: Sequence[float] = (),
        constants: Sequence[Any] = (),
        warps: int = 4,
    ) -> Launch:
        """A launch with these arguments, to be kept for all tensors of a shape."""
        return Launch(self, grid, (*integers, *floats, *constants), warps)


class Launch:
    """A kernel with all its arguments but the tensors."""

    def __init__(self, kernel: Kernel, grid: tuple[int, int, int], arguments: tuple[Any, ...], warps: int) -> None:
        self._function, self._grid, self._arguments, self._warps = kernel.function, grid, arguments, warps
        self._aligned = kernel.aligned
        self._versions: dict[Any, Any] = {}

    def __call__(self, *tensors: Tensor | None) -> None:
        """Launch it. A tensor that the kernel does not read may be None."""
        first = tensors[0]
        device = first.get_device()
        if first.is_cuda and device != torch._C._cuda_getDevice():
            with torch.cuda.device(device):
                return self(*tensors)
        pointers = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        dtypes = [None if tensor is None else tensor.dtype for tensor in tensors]
        key = (device, *dtypes, *[pointers[i] % 16 for i in self._aligned])
        version = self._versions.get(key)
        if version is None:  # the interpreter returns None
            given = [first if tensor is None else tensor for tensor in tensors]
            options = {"num_warps": self._warps, "enable_fp_fusion": True}
            self._versions[key] = self._function[self._grid](*given, *self._arguments, **options)
            return None
        # What `version[grid](…)` does, which asks for hooks and the device again, and looks up each pointer.
        stream = torch._C._cuda_getCurrentRawStream(device)
        fixed = stream, version.function, version.packed_metadata, None, None, None
        return version.run(*self._grid, *fixed, *pointers, *self._arguments)


def kernel(aligned: Sequence[str] = ()) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a function."""
    return lambda function: Kernel(function, aligned)


@kernel()
def _smallest_kernel(x_ptr):
    tl.store(x_ptr, 1.0)


def launch_smallest_kernel(device: torch.device) -> None:
    """Find out whether kernels can be built and launched. Those of a layer take a second to build."""
    _smallest_kernel.bind((1, 1, 1), ())(torch.empty(1, device=device))


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
