"""The call of a layer on a GPU, prepared so that the host has little to do when it comes again.

A layer takes three or four launches of kernels. To find out what these are launched with (the rule of the strategy, the
tiles, a hundred arguments) takes the host longer than the kernels take the GPU. All of it follows from the shape of the
input, the parameters, the calibration and the strategy. So the launches of a call are recorded, and a call like it
launches the same again with its own memory: it reads another input, writes another output, and changes the state of
its own pass.

A call is like a recorded one if all that the launches depend on is the same, which `PreparedCalls.repeat` compares.
Parameters are compared by their addresses, so that the kernels read what they hold now. Everything else (gradients,
torch.func, graphs, several streams in a batch, several passes, drift) takes the general route in `adapted_layer.py`,
which also makes the recording.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .gpu.rules import PAST_KEYS
from .joined_states import JoinedStates, Layout
from .passes import Pass
from .statistics import Statistics
from .stream_rows import whole_batch

if TYPE_CHECKING:
    from .adapted_layer import Adaptation, LayerAdaptation
    from .model_calls import Call
    from .observation import Observation

_MOST_SHAPES = 8
"""How many shapes of inputs a layer has prepared calls for."""
_INPUT, _OUTPUT, _STATE, _ZEROS, _TABLES, _SCRATCH = range(6)
"""Memory that differs from call to call. The tables, in which the statistics of the batch are, are kept afterwards."""
_ALIGNMENT = 16
"""Numbers of single precision: parts of the scratch memory begin at multiples of 64 bytes."""


class TableStatistics(NamedTuple):
    """The statistics of a batch as the first two rows of the tables of `gpu/statistics.py`, [6, 1, C]."""

    tables: Tensor

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.tables[0, 0], self.tables[1, 0])


class _Parameter(NamedTuple):
    """A parameter or buffer, or None, as it was when the call was recorded."""

    tensor: Tensor | None
    address: int
    dtype: torch.dtype | None

    @classmethod
    def of(cls, tensor: Tensor | None) -> _Parameter:
        return cls(None, 0, None) if tensor is None else cls(tensor, tensor.data_ptr(), tensor.dtype)

    def is_still(self, tensor: Tensor | None) -> bool:
        """Whether it is the same one in the same memory: `.data` may have been replaced."""
        if tensor is not self.tensor:
            return False
        if tensor is None:
            return True
        return tensor.data_ptr() == self.address and tensor.dtype == self.dtype and tensor.is_contiguous()


class _PreparedLaunch(NamedTuple):
    """A launch, and which of its arguments are addresses in memory that differs: position, memory, offset in bytes."""

    version: Any
    grid: tuple[int, int, int]
    arguments: list[Any]
    addresses: list[tuple[int, int, int]]


class PreparedCall:
    """The launches of a call, and all that they depend on besides the shape of the input."""

    def __init__(self, adaptation: LayerAdaptation, layer: Any, x: Tensor, eps: float) -> None:
        self.strategy, self.calibration, self.eps = adaptation.shared.strategy, adaptation.calibration, eps
        self.parameters = [_Parameter.of(tensor) for tensor in _parameters(layer)]
        self.device, self.is_aligned = x.get_device(), x.data_ptr() % 16 == 0
        self.layout: Layout | None = None
        self.taken: str | None = None
        self._launches: list[_PreparedLaunch] = []
        self._kept: list[Any] = []

    def record(self, observation: Observation, x: Tensor, y: Tensor) -> bool:
        """Take over launches; False if one of them works in memory that is not known, or if a state was not in place.

        They may read parameters, and `fixed` tensors that stay what they are.
        """
        recording, seen, joined = observation.recording, observation.seen, observation.joined_state
        if seen is None or len(recording.zeros) > 1 or (joined is None and self.strategy.keeps_state):
            return False
        fixed: list[Any] = [*(self.calibration or ()), *whole_batch(len(x)).segments(x.device)]
        if joined is not None:
            fixed.append(joined.layout.offsets(observation.layer, PAST_KEYS))
            if "new_shares" in joined.layout.places[observation.layer]:
                self.taken = "new_shares"
        mean = seen.mean
        sizes = {}
        places = {_storage(x): (_INPUT, x.data_ptr()), _storage(y): (_OUTPUT, y.data_ptr())}
        if joined is not None:
            places[_storage(joined.vector)] = _STATE, joined.vector.data_ptr()
        for zeros in recording.zeros:
            places[_storage(zeros)] = _ZEROS, zeros.data_ptr()
        scratch = 0
        for memory in recording.memory:
            if _storage(memory) == _storage(mean):
                places[_storage(memory)], sizes[_TABLES] = (_TABLES, memory.data_ptr()), tuple(memory.shape)
            else:
                places[_storage(memory)] = _SCRATCH, memory.data_ptr() - 4 * scratch
                scratch += -(-memory.numel() // _ALIGNMENT) * _ALIGNMENT
        fixed += [parameter.tensor for parameter in self.parameters]
        known = {id(tensor) for tensor in fixed if isinstance(tensor, Tensor) and tensor.device == x.device}
        for version, grid, tensors, others in recording.launches:
            arguments: list[Any] = []
            addresses = []
            for position, tensor in enumerate(tensors):
                arguments.append(0 if tensor is None else tensor.data_ptr())
                if tensor is None:
                    continue
                place = places.get(_storage(tensor))
                if place is not None:
                    addresses.append((position, place[0], tensor.data_ptr() - place[1]))
                elif id(tensor) not in known:
                    return False
            self._launches.append(_PreparedLaunch(version, grid, [*arguments, *others], addresses))
        self._kept = fixed
        self._uses_zeros, self._tables, self._scratch = bool(recording.zeros), sizes[_TABLES], scratch
        self._like = mean.new_empty(0)
        self.layout = None if joined is None else joined.layout
        return True

    def launch(self, x: Tensor, address: int, call: Call, joined: JoinedStates | None) -> tuple[Tensor, Tensor]:
        """Normalise an input at this address: the result, and the tables with the statistics of the batch."""
        like = self._like
        y, tables, scratch = torch.empty_like(x), like.new_empty(self._tables), like.new_empty(self._scratch)
        stream = torch._C._cuda_getCurrentRawStream(self.device) if self.device >= 0 else 0
        memory = (
            address,
            y.data_ptr(),
            0 if joined is None else joined.vector.data_ptr(),
            call.zeros(x, stream) if self._uses_zeros else 0,
            tables.data_ptr(),
            scratch.data_ptr(),
        )
        for version, grid, arguments, addresses in self._launches:
            own = arguments.copy()
            for position, which, offset in addresses:
                own[position] = memory[which] + offset
            version.launch(grid, stream, own)
        return y, tables


def can_be_prepared(shared: Adaptation, call: Call, x: Tensor) -> bool:
    """Whether `PreparedCalls.repeat` would look for a call like this one."""
    is_plain = call.adaptation is shared and call.composition is None and call.selection.rows is None
    is_alone = shared.group is None and not shared.watches_drift and call.examples == x.shape[0]
    return is_plain and is_alone and shared.strategy.has_fixed_rule and not torch.is_grad_enabled()


class PreparedCalls:
    """The prepared calls of one layer, by the shape of their input. A copy of the layer prepares its own."""

    def __init__(self) -> None:
        self._calls: dict[Any, PreparedCall] = {}

    def __reduce__(self) -> Any:
        return PreparedCalls, ()

    def prepare(
        self, adaptation: LayerAdaptation, layer: Any, observation: Observation, x: Tensor, y: Tensor, eps: float
    ) -> None:
        """Take over the launches that have just computed y, if they can be repeated."""
        call = PreparedCall(adaptation, layer, x, eps)
        if not call.record(observation, x, y):
            return
        while len(self._calls) >= _MOST_SHAPES:
            self._calls.pop(next(iter(self._calls)), None)
        self._calls[_shape(x)] = call

    def repeat(self, adaptation: LayerAdaptation, layer: Any, x: Any, call: Call | None) -> Tensor | None:
        """The normalised input, if such a call is prepared; None otherwise. There is no graph, and no training."""
        if call is None or type(x) is not Tensor or torch.is_grad_enabled():
            return None
        prepared = self._calls.get(_shape(x))
        if prepared is None or torch._C._functorch.is_functorch_wrapped_tensor(x):
            return None
        shared, address = adaptation.shared, x.data_ptr()
        if (
            prepared.strategy is not shared.strategy
            or prepared.calibration is not adaptation.calibration
            or prepared.eps != (layer.eps if shared.eps is None else shared.eps)
            or prepared.device != x.get_device()
            or prepared.is_aligned != (address % 16 == 0)
            or (prepared.device >= 0 and torch._C._cuda_getDevice() != prepared.device)
            or shared.watches_drift
            or call.adaptation is not shared
            or call.composition is not None
            or call.selection.rows is not None
            or call.examples != x.shape[0]
            or not all(map(_Parameter.is_still, prepared.parameters, _parameters(layer)))
        ):
            return None
        joined = None
        if prepared.layout is not None:
            own_pass, name = call.states, adaptation.name
            if not isinstance(own_pass, Pass):
                return None
            joined = own_pass.joined(name)
            if joined is None or joined.layout is not prepared.layout:
                return None
            if prepared.taken is not None:
                if name in own_pass.changed:
                    return None
                own_pass.take(name, prepared.taken)
            own_pass.change(name)
        y, tables = prepared.launch(x, address, call, joined)
        adaptation.last_batch = TableStatistics(tables)
        return y


def _shape(x: Tensor) -> Any:
    return x.shape, x.stride(), x.dtype


def _parameters(layer: Any) -> Iterable[Tensor | None]:
    return layer.weight, layer.bias, layer.running_mean, layer.running_var


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
