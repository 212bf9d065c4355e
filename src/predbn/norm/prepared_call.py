"""The call of a layer on a GPU, prepared so that the host has little to do when it comes again.

A layer takes three or four launches of kernels. To find out what these are launched with (the rule of the strategy, the
tiles, a hundred arguments) takes the host longer than the kernels take the GPU. All of it follows from the shape of the
input, the parameters, the calibration and the strategy. So the launches of a call are recorded, and a call like it
launches the same again with its own memory: it reads another input, writes another output, and changes the state of
its own pass.

A call is like a recorded one if all that the launches depend on is the same, which `PreparedCalls.repeat` compares.
Parameters are compared by their addresses, so that the kernels read what they hold now. Which classes a batch holds
(`composition.py`) is read from the composition of the call. Everything else (gradients, torch.func, graphs, several
streams in a batch, drift) takes the general route in `adapted_layer.py`, which also makes the recording.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .gpu.rules import PAST_KEYS
from .joined_states import JoinedStates, Layout
from .kernels import IS_INTERPRETED, batch_norm, current_cuda_stream, is_transformed, stats_dtype
from .passes import Pass
from .statistics import Statistics
from .stream_rows import whole_batch

if TYPE_CHECKING:
    from .adapted_layer import Adaptation, LayerAdaptation
    from .composition import Composition
    from .gpu.launch import Recording
    from .model_calls import Call
    from .observation import Observation

_MOST_SHAPES = 32
"""How many shapes of inputs a layer has prepared calls for; there are three for each if a batch has several passes."""
_INPUT, _OUTPUT, _STATE, _ZEROS, _TABLES, _SCRATCH, _COMPOSITION = range(7)
"""Memory that differs from call to call. The tables, in which the statistics of the batch are, are kept afterwards.
From the last number on these are the tensors of the composition."""


class TableStatistics(NamedTuple):
    """The statistics of a batch, the first two of the tables of `gpu/statistics.py`, [C] each, in a vector."""

    memory: Tensor
    begin: int = 0
    channels: int = 0

    @property
    def statistics(self) -> Statistics:
        if not self.channels:  # as earlier versions have written it, [6, 1, C]
            return Statistics(self.memory[0, 0], self.memory[1, 0])
        return Statistics(*self.memory[self.begin :][: 2 * self.channels].view(2, -1))


class _Fixed(NamedTuple):
    """A tensor as it was when the call was recorded, and the dictionary that it was in under this name."""

    place: str
    name: str
    tensor: Tensor | None
    address: int
    dtype: torch.dtype | None

    @classmethod
    def of(cls, place: str, name: str, tensor: Tensor | None) -> _Fixed:
        return cls(place, name, tensor, *((0, None) if tensor is None else (tensor.data_ptr(), tensor.dtype)))


def _parameters_of(layer: Any) -> list[_Fixed] | None:
    """Parameters and buffers of a layer; None if one of them is neither."""
    found = []
    for name in ("weight", "bias", "running_mean", "running_var"):
        place = next((place for place in ("_parameters", "_buffers") if name in layer.__dict__[place]), None)
        tensor = getattr(layer, name)
        if place is None or layer.__dict__[place][name] is not tensor:
            return None
        found.append(_Fixed.of(place, name, tensor))
    return found


def _are_still(recorded: list[_Fixed], places: Mapping[str, Any]) -> bool:
    """Whether they are the same in the same memory: a tensor, or what its `.data` is, may have been replaced."""
    for place, name, tensor, address, dtype in recorded:
        if places[place].get(name) is not tensor:
            return False
        if tensor is not None and (
            tensor.data_ptr() != address or tensor.dtype is not dtype or not tensor.is_contiguous()
        ):
            return False
    return True


class PreparedCall(ABC):
    """All that a call depends on besides the shape of the input.

    parameters   parameters and buffers of the layer
    statistics   what the stream remembers and the call reads, if that is fixed
    layout       of the vector of states that the call changes in place
    taken        what it takes out of the state
    """

    def __init__(self, adaptation: LayerAdaptation, parameters: list[_Fixed], x: Tensor, eps: float) -> None:
        self.strategy, self.calibration, self.eps = adaptation.shared.strategy, adaptation.calibration, eps
        self.parameters = parameters
        self.device, self.is_aligned = x.get_device(), x.data_ptr() % 16 == 0
        self.statistics: list[_Fixed] = []
        self.layout: Layout | None = None
        self.taken: str | None = None

    @abstractmethod
    def launch(self, x: Tensor, address: int, call: Call, joined: JoinedStates | None) -> tuple[Tensor, Any]:
        """The normalised input, which is at this address, and the statistics of the batch; None if not computed."""


class PreparedBatch(PreparedCall):
    """The call of PyTorch's own kernel for training, in which `batch` is all there is."""

    def __init__(self, adaptation: LayerAdaptation, parameters: list[_Fixed], x: Tensor, eps: float) -> None:
        super().__init__(adaptation, parameters, x, eps)
        self._affine = [parameter.tensor for parameter in parameters[:2]]
        self._convert, self._dtype = adaptation.convert, stats_dtype(x)

    def launch(self, x: Tensor, address: int, call: Call, joined: JoinedStates | None) -> tuple[Tensor, Any]:
        weight, bias = self._affine
        if weight is None or bias is None or weight.dtype != self._dtype or bias.dtype != self._dtype:
            weight, bias = self._convert(self._dtype, weight, bias)
        return batch_norm(x, weight, bias, self.eps)


class PreparedKernels(PreparedCall):
    """The launches of our own kernels."""

    def record(self, observation: Observation, x: Tensor, y: Tensor) -> bool:
        """Take over launches; False if one works in memory that is not known, or if a state was not in place."""
        from .gpu.packed_launch import pack_launches

        recording, seen, joined = observation.recording, observation.seen, observation.joined_state
        fixed: list[Any] = [*(self.calibration or ()), *whole_batch(len(x)).segments(x.device)]
        if seen is None:
            if observation.used is None:
                return False
            names = zip(("mean", "var"), observation.used, strict=True)
            self.statistics = [_Fixed.of(observation.layer, name, tensor) for name, tensor in names]
        elif joined is not None:
            self.layout = joined.layout
            fixed.append(joined.layout.offsets(observation.layer, PAST_KEYS))
            if "new_shares" in joined.layout.places[observation.layer]:
                self.taken = "new_shares"
        elif self.strategy.keeps_state:
            return False
        fixed += [each.tensor for each in (*self.parameters, *self.statistics)]
        places = self._places(recording, x, y, None if seen is None else seen.mean, joined)
        known = {tensor.data_ptr() for tensor in fixed if isinstance(tensor, Tensor) and tensor.device == x.device}
        of_classes = {
            tensor.data_ptr(): number
            for number, tensor in enumerate(observation.composition or (), _COMPOSITION)
            if isinstance(tensor, Tensor)
        }
        launches = pack_launches(recording.launches, of_classes, places, known)
        if launches is None:
            return False
        self._launches = launches
        self._fixed = fixed  # so that their memory stays
        self._zeros = sum(map(len, recording.zeros))
        self._lock = Lock()
        return len(recording.zeros) <= 1

    def _places(
        self, recording: Recording, x: Tensor, y: Tensor, mean: Tensor | None, joined: JoinedStates | None
    ) -> dict[int, tuple[int, int]]:
        """Which memory begins where, by the address of its storage. `mean`, of the batch, is in the tables."""
        from .gpu.packed_launch import ScratchLayout

        own = [(_INPUT, x), (_OUTPUT, y), *((_ZEROS, zeros) for zeros in recording.zeros)]
        if joined is not None:
            own.append((_STATE, joined.vector))
        places = {tensor.untyped_storage().data_ptr(): (which, tensor.data_ptr()) for which, tensor in own}
        self._tables = self._channels = 0
        scratch = ScratchLayout()
        for memory in recording.memory:
            storage = memory.untyped_storage().data_ptr()
            if mean is not None and storage == mean.untyped_storage().data_ptr():
                places[storage] = _TABLES, memory.data_ptr()
                self._tables, self._channels = memory.numel(), memory.shape[-1]
            else:
                places[storage] = _SCRATCH, scratch.add(memory)
        self._scratch = scratch.size
        return places

    def launch(self, x: Tensor, address: int, call: Call, joined: JoinedStates | None) -> tuple[Tensor, Any]:
        y = torch.empty_like(x)
        stream = current_cuda_stream(x)
        memory = [address, y.data_ptr(), 0, 0, 0, 0]
        own, statistics = call.memory(self.device, stream, x), None
        if joined is not None:
            memory[_STATE] = joined.vector.data_ptr()
        if self._zeros:
            memory[_ZEROS] = own.zeros(self._zeros)
        if self._tables:
            tables, begin, memory[_TABLES] = own.tables(self._tables)
            memory[_SCRATCH] = own.scratch(self._scratch)
            statistics = TableStatistics(tables, begin, self._channels)
        if call.composition is not None:
            memory += [tensor.data_ptr() if isinstance(tensor, Tensor) else 0 for tensor in call.composition]
        with self._lock:  # of the arguments
            self._launches(stream, memory)
        return y, statistics


def can_be_prepared(shared: Adaptation, call: Call | None, x: Tensor) -> bool:
    """Whether `PreparedCalls.repeat` would look for a call like this one."""
    if call is None or not (x.is_cuda or IS_INTERPRETED) or not shared.strategy.has_fixed_rule or is_transformed(x):
        return False
    is_plain = call.adaptation is shared and call.selection.rows is None
    is_alone = shared.group is None and not shared.watches_drift and call.examples == x.shape[0]
    return is_plain and is_alone and not torch.is_grad_enabled()


class PreparedCalls:
    """The prepared calls of one layer, by the shape of their input. A copy of the layer prepares its own."""

    def __init__(self) -> None:
        self._calls: dict[Any, PreparedCall] = {}

    def __reduce__(self) -> Any:
        return PreparedCalls, ()

    def prepare(
        self, adaptation: LayerAdaptation, layer: Any, x: Tensor, eps: float, y: Tensor, observation: Observation | None
    ) -> None:
        """Prepare to compute y again, as the kernels have just done. Without an observation these were PyTorch's."""
        parameters = _parameters_of(layer)
        if parameters is None:
            return
        call: PreparedCall
        if observation is None:
            call = PreparedBatch(adaptation, parameters, x, eps)
        else:
            call = PreparedKernels(adaptation, parameters, x, eps)
            if not call.record(observation, x, y):
                return
        while len(self._calls) >= _MOST_SHAPES:
            self._calls.pop(next(iter(self._calls)), None)
        self._calls[_shape(x, None if observation is None else observation.composition)] = call

    def repeat(self, adaptation: LayerAdaptation, layer: Any, x: Any, call: Call) -> Tensor | None:
        """The normalised input, if such a call is prepared; None otherwise. There is no graph, and no training."""
        if not self._calls or type(x) is not Tensor or torch.is_grad_enabled():
            return None
        prepared = self._calls.get(_shape(x, call.composition))
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
            or call.selection.rows is not None
            or call.examples != x.shape[0]
            or not _are_still(prepared.parameters, layer.__dict__)
        ):
            return None
        joined, own_pass, name = None, call.states, adaptation.name
        if prepared.statistics:
            states = (shared.default_stream if own_pass is None else own_pass.stream).states  # type: ignore[union-attr]
            if name not in states or not _are_still(prepared.statistics, states):
                return None
        elif prepared.layout is not None:
            assert isinstance(own_pass, Pass)
            joined = own_pass.joined(name)
            if joined is None or joined.layout is not prepared.layout:
                return None
            if prepared.taken is not None:
                if name in own_pass.changed:
                    return None
                own_pass.take(name, prepared.taken)
            own_pass.change(name)
        y, batch = prepared.launch(x, address, call, joined)
        if batch is not None:
            adaptation.last_batch = batch
            if call.composition is not None:
                adaptation.tell_call(call, batch.statistics, prepared.eps)
        return y


def _shape(x: Tensor, composition: Composition | None) -> Any:
    """Of the input, and of what is known about its classes."""
    if composition is None:
        return x.shape, x.stride(), x.dtype
    kinds = ((t.shape, t.dtype, t.get_device()) if isinstance(t, Tensor) else t for t in composition)
    return x.shape, x.stride(), x.dtype, *kinds
