"""Launches whose arguments lie in memory as the driver takes them, so that only addresses have to be written.

To hand fifty arguments to Triton takes the host 2 µs more than the launch itself. Where they lie in memory is what the
driver says about the kernel. If it does not, or if Triton has changed the arguments (it drops whole numbers that are
1), Triton launches the kernel.
"""

# mypy: ignore-errors
from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from torch import Tensor

from .launch import Launch, Version, has_hooks

_FORMATS = {"i32": "i", "i64": "q", "fp32": "f"}
_ALIGNMENT = 16
"""Numbers of single precision: parts of the scratch memory begin at multiples of 64 bytes."""
_MOST_HIDDEN = 2
"""Addresses of memory that Triton itself may want, and does not want here."""
_SPECIAL = "launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size"


class PackedLaunch:
    """A launch of a version of a kernel.

    tensors     the addresses of tensors; `others` are numbers and constants
    addresses   which of the tensors differ from call to call: the position, which memory, and the offset in it in bytes
    """

    def __init__(
        self,
        version: Version,
        grid: tuple[int, int, int],
        tensors: Sequence[int],
        others: Sequence[Any],
        addresses: Sequence[tuple[int, int, int]],
    ) -> None:
        self._version, self._grid, self._addresses = version, grid, addresses
        self._arguments = [*tensors, *others]
        self._launch = None
        packed = _packed(version.compiled, tensors, others)
        if packed is not None:
            metadata = version.compiled.metadata
            self._launch, (self._values, pointers) = _driver().cuLaunchKernel, packed
            self._before_stream = version.compiled.function, *grid, 32 * metadata.num_warps, 1, 1, metadata.shared
            self._after_stream = pointers, None

    def __call__(self, stream: int, memory: Sequence[int]) -> None:
        """Launch it on this CUDA stream of the current device. Not in several threads at the same time."""
        if self._launch is not None and not has_hooks():
            values = self._values
            for position, which, offset in self._addresses:
                values[position] = memory[which] + offset
            if self._launch(*self._before_stream, stream, *self._after_stream) == 0:
                return
        # Also if the driver refuses, as it does in a thread that has not used the GPU before.
        for position, which, offset in self._addresses:
            self._arguments[position] = memory[which] + offset
        self._version.launch(self._grid, stream, self._arguments)


class ScratchLayout:
    """Puts the scratch tensors of a recording one after the other into a single buffer of `size` numbers."""

    def __init__(self) -> None:
        self.size = 0

    def add(self, tensor: Tensor) -> int:
        """Reserve space for a tensor. Its recorded address, minus its offset in the buffer, is returned."""
        base = tensor.data_ptr() - self.size * tensor.itemsize
        self.size += -(-tensor.numel() // _ALIGNMENT) * _ALIGNMENT
        return base


def pack_launches(
    launches: Sequence[Launch],
    inputs: Mapping[int, int],
    places: Mapping[int, tuple[int, int]],
    fixed: Collection[int] = (),
) -> list[PackedLaunch] | None:
    """Launches that were recorded, to be launched again with other memory; None if one uses memory that is not listed.

    inputs   tensors that kernels get as they are: their number, by their address
    places   buffers that kernels get parts of: their number and base address, by the address of their storage
    fixed    addresses of tensors that are the same in every call
    """
    packed = []
    for version, grid, tensors, others in launches:
        arguments = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        addresses = []
        for position, tensor in enumerate(tensors):
            address = arguments[position]
            place = None if tensor is None else places.get(tensor.untyped_storage().data_ptr())
            if tensor is not None and address in inputs:
                addresses.append((position, inputs[address], 0))
            elif place is not None:
                addresses.append((position, place[0], address - place[1]))
            elif tensor is not None and address not in fixed:
                return None
        packed.append(PackedLaunch(version, grid, arguments, others, addresses))
    return packed


def _packed(compiled: Any, tensors: Sequence[int], others: Sequence[Any]) -> tuple[Any, Any] | None:
    """The addresses of the tensors in memory, and the addresses of all arguments; None if that is not known."""
    metadata, source = getattr(compiled, "metadata", None), getattr(compiled, "src", None)
    kinds = list(getattr(source, "signature", {}).values())
    if metadata is None or len(kinds) != len(tensors) + len(others) or _driver() is None:
        return None
    if getattr(metadata, "num_ctas", 1) != 1 or any(getattr(metadata, name, 0) for name in _SPECIAL):
        return None
    values = [*tensors, *(value for value, kind in zip(others, kinds[len(tensors) :], strict=True) if kind in _FORMATS)]
    formats = ["Q" if kind.startswith("*") else _FORMATS.get(kind) for kind in kinds[: len(values)]]
    places = _places_of_arguments(compiled.function)
    hidden = places[len(values) :]
    if None in formats or formats[: len(tensors)] != ["Q"] * len(tensors) or len(places) < len(values):
        return None
    if len(hidden) > _MOST_HIDDEN or any(size != 8 for _, size in hidden):
        return None
    if any(struct.calcsize(form) != size for form, (_, size) in zip(formats, places, strict=False)):
        return None
    memory = bytearray(sum(places[-1]))
    for value, form, (offset, _) in zip(values, formats, places, strict=False):
        struct.pack_into(form, memory, offset, value)
    addresses = (ctypes.c_uint64 * len(tensors)).from_buffer(memory)
    begin = ctypes.addressof(addresses)
    return addresses, (ctypes.c_void_p * len(places))(*(begin + offset for offset, _ in places))


@cache
def _places_of_arguments(function: int) -> list[tuple[int, int]]:
    """Where each argument of a kernel begins in memory, and how many bytes it has."""
    places, offset, size = [], ctypes.c_size_t(), ctypes.c_size_t()
    info = _driver().cuFuncGetParamInfo
    while info(function, len(places), ctypes.byref(offset), ctypes.byref(size)) == 0:
        places.append((offset.value, size.value))
    return places


@cache
def _driver() -> Any:
    """The functions of the CUDA driver that are called here; None without them."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        pointer, whole, size = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t
        driver.cuFuncGetParamInfo.argtypes = [pointer, size, ctypes.POINTER(size), ctypes.POINTER(size)]
        driver.cuLaunchKernel.argtypes = [pointer, *[whole] * 7, pointer, pointer, pointer]
    except (OSError, AttributeError):  # no driver, another system, or a driver before CUDA 12.4
        return None
    return driver
