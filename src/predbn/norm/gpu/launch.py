"""Launch Triton kernels quickly.

Triton looks at every argument of every launch to find out which version of the kernel it needs: 30 µs and more for
twenty arguments, which is longer than most of these kernels run. The version depends on the types of the tensors, on
which whole numbers are 1 or multiples of 16, and on whether tensors begin at a multiple of 16 bytes. Here only few of
them are considered, because it takes up to seconds to compile a version, and the version that Triton has found is kept.

What is launched can be recorded, so that it can be launched again with other memory (`prepared_call.py`).
"""

# mypy: ignore-errors
from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kernels import IS_INTERPRETED, current_cuda_stream


def power_of_2(number: int) -> int:
    """The least power of two that is not smaller. Triton's own function takes several microseconds."""
    return 1 << max(0, number - 1).bit_length()


def ceil_div(number: int, size: int) -> int:
    """number / size, rounded up. Triton's own function takes several microseconds, too."""
    return -(-number // size)


class Version:
    """A compiled version of a kernel, for the types of arguments that it was compiled for.

    A tensor may be given as its address. For an address Triton does not ask the driver whether it is one, which takes
    longer than the launch if there are many; 0 is for tensors that are not read.
    """

    def __init__(self, compiled: Any, dtypes: Sequence[torch.dtype]) -> None:
        self.compiled, self._dtypes = compiled, dtypes
        is_known = all(hasattr(compiled, name) for name in ("run", "function", "packed_metadata"))
        self._run = compiled.run if is_known else None
        self._function = (compiled.function, compiled.packed_metadata, None, None, None) if is_known else ()

    def launch(self, grid: tuple[int, int, int], stream: int, arguments: Sequence[Any]) -> None:
        """Launch it on the current device. `stream` is the address of the CUDA stream."""
        if IS_INTERPRETED:
            count = len(self._dtypes)
            tensors = map(_tensor_at, arguments[:count], self._dtypes)
            self.compiled[grid](*tensors, *arguments[count:])
        elif self._run is None or has_hooks():
            self.compiled[grid](*arguments)
        else:  # what the line above does, without looking for hooks
            self._run(*grid, stream, *self._function, *arguments)


_hooks = triton.knobs.runtime if hasattr(triton, "knobs") else triton.compiler.CompiledKernel


def has_hooks() -> bool:
    """Whether somebody, such as a profiler, wants to be told about launches."""
    enter, leave = _hooks.launch_enter_hook, _hooks.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


def _tensor_at(value: Tensor | int | None, dtype: torch.dtype) -> Tensor:
    """The interpreter takes no addresses, and looks at nothing but the address of a tensor."""
    if isinstance(value, Tensor):
        return value
    if not value:
        return torch.empty(1, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * dtype.itemsize).from_address(value), dtype=dtype)


class Launch(NamedTuple):
    """A launch: which version of a kernel, its grid, its tensors (None for one that is not read) and the rest."""

    version: Version
    grid: tuple[int, int, int]
    tensors: tuple[Tensor | None, ...]
    others: tuple[Any, ...]


class Recording:
    """Launches in their order, the memory that they work in, and zeros that they change."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.memory: list[Tensor] = []
        self.zeros: list[Tensor] = []


class _InThread(threading.local):
    recording: Recording | None = None


_in_thread = _InThread()


@contextmanager
def recorded() -> Iterator[Recording]:
    """Record the launches of this thread."""
    outer, _in_thread.recording = _in_thread.recording, Recording()
    try:
        yield _in_thread.recording
    finally:
        _in_thread.recording = outer


def new_memory(shape: Sequence[int], device: torch.device) -> Tensor:
    """Memory of single precision for what kernels compute."""
    memory = torch.empty(shape, dtype=torch.float32, device=device)
    if _in_thread.recording is not None:
        _in_thread.recording.memory.append(memory)
    return memory


def new_zeros(count: int, device: torch.device) -> Tensor:
    """Zeros of 32 bits, which kernels count or mark something in."""
    zeros = torch.zeros(count, dtype=torch.int32, device=device)
    if _in_thread.recording is not None:
        _in_thread.recording.zeros.append(zeros)
    return zeros


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
        self._versions: dict[Any, Version] = {}

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
        if first.is_cuda and first.device.index != torch.cuda.current_device():
            with torch.cuda.device(first.device):
                self(grid, tensors, numbers, floats, constants, warps, stages)
            return
        chosen = [tensors[i] for i in self._aligned if i < len(tensors)]
        is_aligned = [tensor is None or tensor.data_ptr() % 16 == 0 for tensor in chosen]
        dtypes = [first.dtype if tensor is None else tensor.dtype for tensor in tensors]
        key = (first.device, warps, stages, *is_aligned, *dtypes, *numbers, *constants)
        version = self._versions.get(key)
        others = *numbers, *floats, *constants
        if version is None:
            given = [first if tensor is None else tensor for tensor in tensors]
            compiled = self._function[grid](*given, *others, num_warps=warps, num_stages=stages)
            version = self._versions[key] = Version(self._function if IS_INTERPRETED else compiled, dtypes)
        else:
            version.launch(grid, current_cuda_stream(first), (*tensors, *others))
        if _in_thread.recording is not None:
            _in_thread.recording.launches.append(Launch(version, grid, tuple(tensors), others))


def kernel(aligned: Sequence[str] = ()) -> Callable[[Callable[..., None]], Kernel]:
    """Make a kernel of a function."""
    return lambda function: Kernel(function, aligned)


@kernel()
def _smallest_kernel(x):
    tl.store(x, 1.0)


def launch_smallest_kernel(device: torch.device) -> None:
    """To find out whether kernels can be built and launched. Those of a layer take a second to build."""
    _smallest_kernel((1, 1, 1), (torch.empty(1, device=device),), ())
