"""Operators that launch kernels, prepared so that the host has little to do when they are called again.

A compiled network calls an operator for every layer, and waits for it if it takes the host longer than its kernels take
the GPU. So the launches of a call are recorded, and a call with tensors of the same kinds launches them again with its
own memory, as `prepared_call.py` does for layers in eager mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from ..kernels import current_cuda_stream
from .launch import recorded
from .packed_launch import PackedLaunches, ScratchLayout, pack_launches

_MOST_PREPARED = 4096


class _Prepared:
    """The launches of a call, and for how many numbers and zeros they need memory.

    It is allocated in every call: Inductor records calls as CUDA graphs, and what is kept from such a call is an error.
    """

    def __init__(self, launches: PackedLaunches, scratch: int, zeros: int) -> None:
        self.launches, self.scratch, self.zeros = launches, scratch, zeros
        self.lock = Lock()


class PreparedOperator:
    """A function that writes to its outputs what kernels compute from its inputs.

    It is called with the inputs, the outputs and options, and may take memory from `launch.py` only. What is launched
    may depend on the shape, the strides and the address of the first input, on the dtypes of all, and on the options.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._calls: dict[Any, _Prepared] = {}

    def __call__(self, inputs: Sequence[Tensor | None], shapes: Sequence[Sequence[int]], *options: Any) -> list[Tensor]:
        """Outputs in single precision of these shapes, which follow from the inputs and options."""
        x = inputs[0]
        assert x is not None
        outputs = [x.new_empty(shape, dtype=torch.float32) for shape in shapes]
        if x.is_cuda and torch._C._cuda_getDevice() != x.get_device():
            self._function(inputs, outputs, *options)
            return outputs
        key = (
            x.shape, x.stride(), x.get_device(), x.data_ptr() % 16 == 0, options,
            *[None if t is None else t.dtype for t in inputs],
        )  # fmt: skip
        call = self._calls.get(key)
        if call is None:
            with recorded() as recording:
                self._function(inputs, outputs, *options)
            call = _prepared(recording, inputs, outputs)
            while call is not None and len(self._calls) >= _MOST_PREPARED:
                self._calls.pop(next(iter(self._calls), None), None)
            if call is not None:
                self._calls[key] = call
            return outputs
        stream = current_cuda_stream(x)
        memory = [0 if t is None else t.data_ptr() for t in (*inputs, *outputs)]
        scratch = x.new_empty(call.scratch, dtype=torch.float32) if call.scratch else None
        zeros = x.new_zeros(call.zeros, dtype=torch.int32) if call.zeros else None
        memory += [0 if t is None else t.data_ptr() for t in (scratch, zeros)]
        with call.lock:
            call.launches(stream, memory)
        return outputs


def _prepared(recording: Any, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> _Prepared | None:
    """What was recorded, to be launched again; None if a launch works in other memory."""
    own = {t.data_ptr(): number for number, t in enumerate(inputs) if t is not None}
    is_clear = len(own) == sum(t is not None for t in inputs)  # which input is which
    if not is_clear or len(recording.zeros) > 1:
        return None
    count = len(inputs)
    places = {t.untyped_storage().data_ptr(): (count + number, t.data_ptr()) for number, t in enumerate(outputs)}
    count += len(outputs)
    scratch = ScratchLayout()
    places |= {t.untyped_storage().data_ptr(): (count, scratch.add(t)) for t in recording.memory}
    places |= {t.untyped_storage().data_ptr(): (count + 1, t.data_ptr()) for t in recording.zeros}
    launches = pack_launches(recording.launches, own, places)
    if launches is None:
        return None
    return _Prepared(launches, scratch.size, sum(len(zeros) for zeros in recording.zeros))
