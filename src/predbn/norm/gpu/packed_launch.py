"""Launches whose arguments lie in memory as the driver takes them, so that only addresses have to be written.

To hand fifty arguments to Triton takes the host 2 µs more than the launch itself. The driver says where each argument
of a kernel has to lie. If it does not, or if Triton has changed the arguments (it drops whole numbers that are 1),
Triton launches the kernel. Grid and CUDA stream lie in memory as well, so that a call of the driver has four arguments:
each further one would take Python another tenth of a microsecond.
"""

# mypy: ignore-errors
from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from .launch import Launch, Version, has_hooks

_FORMATS = {"i32": "i", "i64": "q", "fp32": "f"}
_ALIGNMENT = 16
"""Numbers of single precision: parts of the scratch memory begin at multiples of 64 bytes."""
_MOST_HIDDEN = 2
"""Addresses of memory that Triton itself may want, and does not want here."""
_SPECIAL = "launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size"


class _Config(ctypes.Structure):
    """CUlaunchConfig of the CUDA driver."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_memory", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class RecordedLaunch(NamedTuple):
    """A launch that was recorded.

    tensors     the addresses of tensors; `others` are numbers and constants
    addresses   which of the tensors differ from call to call: the position, which memory, and the offset in it in bytes
    """

    version: Version
    grid: tuple[int, int, int]
    tensors: list[int]
    others: tuple[Any, ...]
    addresses: list[tuple[int, int, int]]


class _PackedLaunch(NamedTuple):
    """What the driver reads: addresses of the tensors of a launch, and of all its arguments; grid and stream."""

    values: Any
    pointers: Any
    config: _Config


class PackedLaunches:
    """Launches that follow each other. Not to be called in several threads at the same time."""

    def __init__(self, launches: Sequence[RecordedLaunch]) -> None:
        self._launches = launches
        self._packed = [_pack(*launch[:4]) for launch in launches]
        self._memory: Sequence[int] | None = None
        self._stream: int | None = None
        self._launch = None if _driver() is None else _driver().cuLaunchKernelEx
        self._arguments, self._changing = [], []
        for launch, found in zip(launches, self._packed, strict=True):
            if found is None:
                self._arguments.append(None)
                continue
            values, pointers, config = found
            function = launch.version.compiled.function
            self._arguments.append((ctypes.addressof(config), function, ctypes.addressof(pointers), None))
            self._changing += [(values, *each) for each in launch.addresses]

    def __call__(self, stream: int, memory: Sequence[int]) -> None:
        """Launch all on this CUDA stream of the current device. `memory` has addresses, and is not changed later."""
        if memory != self._memory:  # often it is the memory of the last call
            self._memory = None  # if this is interrupted
            for values, position, which, offset in self._changing:
                values[position] = memory[which] + offset
            self._memory = memory
        if stream != self._stream:
            self._stream = None
            for found in self._packed:
                if found is not None:
                    found.config.stream = stream
            self._stream = stream
        launch, are_hooked = self._launch, has_hooks()
        for number, arguments in enumerate(self._arguments):
            # The driver may refuse a launch, as it does in a thread that has not used the GPU before.
            if arguments is None or are_hooked or launch(*arguments):
                self._launch_by_triton(number, stream, memory)

    def _launch_by_triton(self, number: int, stream: int, memory: Sequence[int]) -> None:
        version, grid, tensors, others, addresses = self._launches[number]
        tensors = list(tensors)
        for position, which, offset in addresses:
            tensors[position] = memory[which] + offset
        version.launch(grid, stream, (*tensors, *others))


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
) -> PackedLaunches | None:
    """Launches that were recorded, to be launched again with other memory; None if one uses memory that is not listed.

    inputs   tensors that kernels get as they are: their number, by their address
    places   buffers that kernels get parts of: their number and base address, by the address of their storage
    fixed    addresses of tensors that are the same in every call
    """
    recorded = []
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
        recorded.append(RecordedLaunch(version, grid, arguments, others, addresses))
    return PackedLaunches(recorded)


def _pack(version: Version, grid: Sequence[int], tensors: Sequence[int], others: Sequence[Any]) -> _PackedLaunch | None:
    """A launch in memory; None if it is not known where the arguments have to be."""
    compiled = version.compiled
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
    pointers = (ctypes.c_void_p * len(places))(*(begin + offset for offset, _ in places))
    block = ctypes.c_uint * 3
    config = _Config(block(*grid), block(32 * metadata.num_warps, 1, 1), metadata.shared)
    return _PackedLaunch(addresses, pointers, config)


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
        return _with_types(ctypes.CDLL("libcuda.so.1"))
    except (OSError, AttributeError):  # no driver, another system, or a driver before CUDA 12.4
        return None


def _with_types(driver: ctypes.CDLL) -> ctypes.CDLL:
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    driver.cuFuncGetParamInfo.argtypes = [pointer, size, ctypes.POINTER(size), ctypes.POINTER(size)]
    driver.cuLaunchKernelEx.argtypes = [pointer] * 4
    return driver
