"""A batch norm layer that takes its statistics from a strategy in `.eval()` mode.

`attach` gives a layer another class, a subclass of its own, and one plain attribute. Parameters, buffers, hooks, flags
and the object itself stay, so every reference to the layer stays valid, and `detach` gives back the very same layer.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from predbn.common import AdaptationError

from . import kernels
from .calibration import Calibration
from .gpu import operators
from .layers import Epilogue, device_of, epilogue_of, named_layers
from .mixed_classes import SeenLayer
from .model_calls import Call, eager_call, new_pass, running_call
from .observation import is_known_finite, undefined_variance_error
from .passes import Stream
from .prepared_call import PreparedCalls, TableStatistics, can_be_prepared
from .statistics import LazyStatistics, Statistics
from .strategies import Strategy
from .stream_blocks import Selection, current_selection
from .stream_observation import new_observation
from .stream_registry import StreamRegistry
from .stream_store import StreamStore


class _Changes:
    """How often layers of any model were adapted, restored or given a calibration.

    Whoever keeps something that depends on it looks again when the count has changed.
    """

    count = 0


CHANGES = _Changes()


class Adaptation:
    """What all layers share that were adapted by one call of `adapt`."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        eps: float | None = None,
        sync: bool = False,
        process_group: Any = None,
        group: int | None = None,
        robust: bool = False,
        layer_count: int = 1,
        max_streams: int | None = None,
        store: StreamStore | None = None,
    ) -> None:
        self.strategy = strategy
        self.eps = eps
        self.sync = sync
        self.process_group = process_group
        self.group = group
        self.robust = robust
        self.layer_count = layer_count
        self.streams = StreamRegistry(strategy, max_streams, store)
        self.has_warned = False
        self.watches_drift = False
        """Whether layers keep what they have seen and used in `last_pass`, for `drift.py`."""
        self.classes: Calibration | None = None
        """The calibration of a layer that tells classes apart; None if there is none."""

    @property
    def default_stream(self) -> Stream:
        return self.streams.default

    @property
    def default_selection(self) -> Selection:
        return Selection((self.streams.default,))

    @property
    def is_identity(self) -> bool:
        """Whether the layers do what they did before."""
        return self.strategy.is_identity and self.eps is None and self.group is None

    def __getstate__(self) -> dict[str, Any]:
        """Process groups belong to this process and cannot be saved."""
        if self.process_group is not None:
            raise AdaptationError(
                "a model that is synchronised over a process group cannot be pickled, because the group belongs to "
                "this process; restore the model first, and adapt it again after loading"
            )
        return self.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> Adaptation:
        """A copy is synchronised over the same processes."""
        new = memo[id(self)] = object.__new__(type(self))
        memo[id(self.process_group)] = self.process_group
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new


class LayerAdaptation:
    """What `adapt` attaches to one layer: its own data, and in `shared` what it shares with the other layers."""

    def __init__(self, name: str, shared: Adaptation, calibration: Calibration | None = None) -> None:
        self.name = name
        self.shared = shared
        self._calibration: Calibration | None = None
        self.calibration = calibration
        self.last_batch: LazyStatistics | TableStatistics | None = None
        self.last_pass: tuple[Statistics | None, Statistics | None] = None, None
        """The statistics of the streams, [C] or [S, C], and those that were used; with groups these are [N, C]."""
        self.bad_rows = 0
        self._converted: dict[Any, tuple[Tensor, ...]] = {}
        self.prepared = PreparedCalls()

    def __getstate__(self) -> dict[str, Any]:
        """The statistics of the last batch are copied out of the memory that they share with other layers."""
        batch = self.last_batch
        if isinstance(batch, TableStatistics):
            mean, var = batch.statistics
            batch = LazyStatistics(mean.clone(), var.clone())
        return {**self.__dict__, "last_batch": batch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Earlier versions have written no prepared calls."""
        self.__dict__.update({"prepared": PreparedCalls(), **state})

    @property
    def calibration(self) -> Calibration | None:
        """What `calibrate` measured for the layer."""
        return self._calibration

    @calibration.setter
    def calibration(self, calibration: Calibration | None) -> None:
        CHANGES.count += 1
        self._calibration = calibration
        if calibration is not None and calibration.class_sizes is not None:
            self.shared.classes = calibration

    def eps(self, layer: Any) -> float:
        return float(layer.eps) if self.shared.eps is None else self.shared.eps

    def normalise(self, layer: Any, x: Tensor) -> Tensor:
        """Normalise the input of a layer whose forward we know."""
        self.check_context(layer)
        return self.batch_norm(layer, x, layer.weight, layer.bias, self.eps(layer))

    def batch_norm(
        self,
        layer: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        running: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> Tensor:
        """What takes the place of a call of torch's batch_norm. By default the running statistics are the layer's."""
        shared, dtype = self.shared, kernels.stats_dtype(x)
        strategy = shared.strategy
        call = running_call()
        own_call = None if call is None else call.of(shared)
        selection = current_selection(shared) if own_call is None else own_call.selection
        is_own_layer = running[0] is None and running[1] is None
        if call is None:
            selection.check_examples(x.shape[0])
        is_one_batch = shared.group is None and selection.rows is None
        is_plain = strategy.uses_batch_alone and not shared.sync and not shared.robust and is_one_batch
        if is_plain and not kernels.can_mix_in_graph(x) and not kernels.is_slow_in_cudnn(x, weight, bias):
            if x.numel() == x.shape[1]:
                raise undefined_variance_error(self.name, x)
            weight, bias = self.convert(dtype, weight, bias)
            y, batch = kernels.batch_norm(x, weight, bias, eps)
            if is_known_finite(batch.mean, batch.spread):
                if is_own_layer and can_be_prepared(shared, call, x):
                    self.prepared.prepare(self, layer, x, eps, y, None)
                self._record(x, batch)
                if shared.watches_drift:
                    self.last_pass = batch.statistics, batch.statistics
                return y
        if running[0] is None or running[1] is None:
            running = layer.running_mean, layer.running_var
        own_pass = new_pass(shared, selection) if own_call is None else None
        running_pass = own_pass if own_call is None else own_call.states
        is_kept = False
        try:
            observation = new_observation(
                x,
                selection.rows,
                layer=self.name,
                shared=shared,
                eps=eps,
                source=None if running[0] is None or running[1] is None else Statistics(running[0], running[1]),
                calibration=None if strategy.ignores_calibration else self.calibration,
                memory=running_pass or shared.default_stream,
                examples=x.shape[0] if call is None else call.count_examples(x),
                composition=None if call is None else call.composition,
            )
            normalised = observation.normalise_with_kernels(strategy, weight, bias, keep_used=shared.watches_drift)
            if normalised is not None and is_own_layer and can_be_prepared(shared, call, x):
                self.prepared.prepare(self, layer, x, eps, normalised, observation)
            if normalised is None:
                observation.affine = weight, bias
                weight, bias, mean, var = self.convert(dtype, weight, bias, *running)
                observation.source = None if mean is None or var is None else Statistics(mean, var)
                statistics = observation.choose(strategy)
            if shared.watches_drift:
                self.last_pass = observation.seen, observation.used
            if own_call is not None and own_call.composition is not None:
                self.tell_call(own_call, observation.seen, eps)
            is_kept = True
        finally:
            if own_pass is not None:
                own_pass.end(keep=is_kept)
        if observation.bad_rows and (own_call is None or own_call.is_last_pass):
            self._report_bad_rows(observation.bad_rows)
        if observation.batch_statistics is not None:
            self._record(x, LazyStatistics(*observation.batch_statistics))
        if normalised is not None:
            return normalised
        if observation.scale_and_shift is not None:
            return operators.scale_and_shift(x, *observation.scale_and_shift)
        mean, var = (t.to(x.device, dtype) for t in statistics)
        return kernels.normalise(x, mean, var, weight, bias, eps, is_stored=observation.seen is None)

    def tell_call(self, call: Call, seen: Statistics | None, eps: float) -> None:
        """Tell the call what this layer has seen, if it knows classes (`mixed_classes.py`)."""
        if seen is not None and self.calibration is not None and self.calibration.class_sizes is not None:
            call.last_seen = SeenLayer(seen, self.calibration, eps)

    def convert(self, dtype: torch.dtype, *tensors: Tensor | None) -> Sequence[Tensor | None]:
        """Parameters and running statistics in the dtype of the statistics.

        They are converted in every call, because writes through `.data`, numpy or views cannot be noticed. Without
        gradients that is a single operation for all of them, into the same memory every time.
        """
        if all(t is None or t.dtype == dtype for t in tensors):
            return tensors
        present = [t for t in tensors if t is not None]
        first = present[0]
        is_plain = all(
            type(t) in kernels.PLAIN and t.shape == first.shape and t.device == first.device for t in present
        )
        if torch.is_grad_enabled() or not is_plain or len(present) < len(tensors) or kernels.is_tracing():
            return [kernels.convert(dtype, t) for t in tensors]
        key = dtype, first.device, (len(present), *first.shape)
        converted = self._converted.get(key)
        if converted is None:  # which is kept, because a CUDA graph may write to it
            with torch.inference_mode(False):
                converted = torch.empty(key[2], dtype=dtype, device=first.device).unbind()
            self._converted[key] = converted
        torch._foreach_copy_(converted, present)
        return converted

    def _record(self, x: Tensor, batch: LazyStatistics) -> None:
        """Keep a batch's statistics for `describe`. Those of a traced batch are symbols, so that none are known."""
        if kernels.is_transformed(x):
            self.last_batch = None
        elif batch.mean.requires_grad:
            self.last_batch = LazyStatistics(batch.mean.detach(), batch.spread.detach(), batch.eps)
        else:
            self.last_batch = batch

    def _report_bad_rows(self, count: int) -> None:
        self.bad_rows += count
        if not self.shared.has_warned:
            self.shared.has_warned = True
            warnings.warn(
                f"layer '{self.name}' got {count} examples that are not finite (NaN or infinite). They are left out of "
                "the statistics; predbn.describe(model) counts them",
                UserWarning,
                stacklevel=2,
            )

    def check_context(self, layer: Any) -> None:
        """Raise an error if the layer cannot be run where it is: in an exporter, or in a replica."""
        strategy = self.shared.strategy
        if not strategy.keeps_state:
            is_traced = not torch.compiler.is_compiling() and torch._C._is_tracing()
            if is_traced and torch.onnx.is_in_onnx_export():
                raise AdaptationError(
                    "torch.onnx.export with dynamo=False writes wrong or invalid files for adapted models; "
                    "use dynamo=True"
                )
            return
        is_traced = kernels.is_tracing()  # otherwise nothing is exported, and asking about it takes time
        if is_traced and (kernels.is_exporting() or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export()):
            raise AdaptationError(
                f"strategy '{strategy.name}' keeps state from batch to batch, which an exported graph cannot; "
                "export predbn.fold(model), which fixes the statistics, or use 'batch' or 'prior'"
            )
        if getattr(layer, "_is_replica", False):
            raise AdaptationError(
                f"strategy '{strategy.name}' keeps state, which the replicas of DataParallel cannot share; use "
                "DistributedDataParallel with sync=True, or 'batch' or 'prior'"
            )


class AdaptedLayer(nn.Module):
    """Mixed into the class of an adapted layer. In training mode the layer works as it always did."""

    _predbn: LayerAdaptation
    _predbn_source: type[nn.Module]
    _predbn_epilogue: Epilogue | None

    def forward(self, input: Tensor) -> Tensor:
        if not self.training and not kernels.is_tracing():
            adaptation, call = self.__dict__.get("_predbn"), eager_call()
            if adaptation is not None and call is not None:
                y = adaptation.prepared.repeat(adaptation, self, input, call)
                if y is not None:
                    call.layer_calls += 1
                    return self._predbn_epilogue(self, y)  # type: ignore[misc]
        if _keeps_its_forward(self, input):
            return cast(Tensor, getattr(self, "_predbn_source", type(self)).forward(self, input))
        check_input = getattr(self, "_check_input_dim", None)
        if check_input is not None:
            check_input(input)
        return self._predbn_epilogue(self, self._predbn.normalise(self, input))  # type: ignore[misc]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """If the layer is moved, its states and calibration move along; their precision stays."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = device_of(self)
        if device is not None:
            for stream in self._predbn.shared.streams.values():
                stream.leave_table()
                states = stream.copied_states()
                state = states.get(self._predbn.name, {})
                state.update({k: v.to(device) for k, v in state.items() if isinstance(v, Tensor)})
                stream.states = states
            calibration = self._predbn.calibration
            if calibration is not None:
                self._predbn.calibration = calibration.to(device)
        return self

    def extra_repr(self) -> str:
        return ", ".join(part for part in (super().extra_repr(), f"strategy={self._predbn.shared.strategy}") if part)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The class is created at run time: pickle and copy create it again from the source class."""
        arguments = source_class(self), "_predbn_forward" in self.__dict__
        return _new_adapted_layer, arguments, self.__dict__.copy()


def _keeps_its_forward(layer: AdaptedLayer, x: Any) -> bool:
    """Whether the layer does now what it did before it was adapted.

    A forward that was set on the instance may call ours although we do not know what it does around that call, or
    although the layer is adapted no longer.
    """
    adaptation: LayerAdaptation | None = layer.__dict__.get("_predbn")
    if adaptation is None or layer._predbn_epilogue is None:
        return True
    return _is_training(layer) or _is_unchanged(adaptation.shared, adaptation.name, x)


def _is_training(layer: nn.Module) -> bool:
    """Also counts the call of the layer.

    Frozen layers do the same in both modes, and timm creates them in training mode whatever the model's mode is.
    """
    call = running_call()
    if call is not None and not torch.compiler.is_compiling():
        call.layer_calls += 1
    return layer.training and (call is None or isinstance(layer, _BatchNorm) or call.model.training)


def _is_unchanged(shared: Adaptation, name: str, x: Any) -> bool:
    if shared.is_identity:
        return True
    if not isinstance(x, Tensor):
        raise AdaptationError(f"layer '{name}' got a {type(x).__name__}, not a Tensor")
    return x.numel() == 0 and not shared.sync


class InterceptedLayer(AdaptedLayer):
    """An adapted layer whose forward we do not know, or that has one set on the instance, as accelerate does.

    It is run, and its call of torch's batch_norm is replaced.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        forward = self.__dict__.get("_predbn_forward") or super(AdaptedLayer, self).forward
        if _is_training(self) or self._predbn.shared.is_identity:
            return forward(*args, **kwargs)
        with _ReplaceBatchNorm(self._predbn, self) as replacement:
            y = forward(*args, **kwargs)
        if not replacement.called:
            raise _unknown_forward_error(self._predbn.name, self)
        return y


class _ReplaceBatchNorm(TorchFunctionMode):
    """Normalises in place of calls of torch's batch_norm, with the weight, bias and eps that they are given.

    What the class does before and after that call stays as it is.
    """

    def __init__(self, adaptation: LayerAdaptation, layer: nn.Module) -> None:
        super().__init__()
        self.adaptation, self.layer, self.called = adaptation, layer, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:
            return self._replace(func, args, kwargs, *_functional_arguments(*args, **kwargs))
        if func is torch.batch_norm:
            return self._replace(func, args, kwargs, *_torch_arguments(*args, **kwargs))
        return func(*args, **kwargs)

    def _replace(
        self, func: Any, args: Any, kwargs: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
    ) -> Any:
        self.called = True
        shared, layer = self.adaptation.shared, cast(Any, self.layer)
        if _is_unchanged(shared, self.adaptation.name, x):
            return func(*args, **kwargs)
        self.adaptation.check_context(layer)
        eps = float(eps) if shared.eps is None else shared.eps
        return self.adaptation.batch_norm(layer, x, weight, bias, eps, (mean, var))


def _functional_arguments(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> tuple[Any, ...]:  # fmt: skip
    """Picks what we need out of the arguments of F.batch_norm."""
    return input, running_mean, running_var, weight, bias, eps


def _torch_arguments(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    training: bool, momentum: float, eps: float, cudnn_enabled: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The same for torch.batch_norm."""
    return input, running_mean, running_var, weight, bias, eps


def _unknown_forward_error(name: str, layer: nn.Module) -> AdaptationError:
    cls = source_class(layer)
    return AdaptationError(
        f"layer '{name}' is a {cls.__module__}.{cls.__qualname__}, whose forward does not call torch's batch_norm, so "
        "its statistics cannot be replaced; leave it out with layers=lambda name, layer: …"
    )


@cache
def _adapted_class(source: type[nn.Module], intercepted: bool) -> type[nn.Module]:
    """The adapted subclass of `source`.

    It claims to come from the source's module, because torch.fx and other tools recognise torch.nn layers by that.
    """
    epilogue = None if intercepted else epilogue_of(source)
    attributes = {
        "__module__": source.__module__,
        "__doc__": source.__doc__,
        "_predbn_source": source,
        "_predbn_epilogue": None if epilogue is None else staticmethod(epilogue),
    }
    adapted = InterceptedLayer if epilogue is None else AdaptedLayer
    return type(f"Adapted{source.__name__}", (adapted, source), attributes)


def _new_adapted_layer(source: type[nn.Module], intercepted: bool = False) -> nn.Module:
    cls = _adapted_class(source, intercepted)  # type: ignore[arg-type]
    return cls.__new__(cls)


def source_class(layer: nn.Module) -> type[nn.Module]:
    """The class that the layer has when it is not adapted."""
    return _source_of(type(layer))  # type: ignore[arg-type]


@cache
def _source_of(cls: type[nn.Module]) -> type[nn.Module]:
    if "_predbn_source" in cls.__dict__ or not issubclass(cls, AdaptedLayer):
        return cast(type[nn.Module], cls.__dict__.get("_predbn_source", cls))
    # A tool derived this class from ours, as parametrize does: derive the same one from the source class.
    bases = tuple(_source_of(base) for base in cls.__bases__)
    attributes = {k: v for k, v in cls.__dict__.items() if k not in ("__dict__", "__weakref__")}
    return type(cls.__name__, bases, attributes)


def source_statistics(layer: Any) -> Statistics | None:
    """The statistics stored in training; None for a layer that never tracked any."""
    if layer.running_mean is None or layer.running_var is None:
        return None
    return Statistics(layer.running_mean, layer.running_var)


def attach(layer: nn.Module, adaptation: LayerAdaptation | None) -> None:
    """Make a layer adapted; with None, the same as `detach`."""
    if adaptation is None:
        detach(layer)
        return
    CHANGES.count += 1
    own = layer.__dict__
    if "forward" in own and not isinstance(layer, AdaptedLayer):
        own["_predbn_forward"] = own.pop("forward")
    layer.__class__ = _adapted_class(source_class(layer), "_predbn_forward" in own)  # type: ignore[arg-type]
    own["_predbn"] = adaptation


def detach(layer: nn.Module) -> None:
    """Make an adapted layer the layer it was."""
    CHANGES.count += 1
    layer.__class__ = source_class(layer)
    layer.__dict__.pop("_predbn", None)
    if "_predbn_forward" in layer.__dict__:
        layer.__dict__["forward"] = layer.__dict__.pop("_predbn_forward")


def attached(layer: nn.Module) -> LayerAdaptation | None:
    """What is attached to a layer; None if it is not adapted."""
    return layer._predbn if isinstance(layer, AdaptedLayer) else None


def adapted_layers(model: nn.Module) -> list[tuple[str, nn.Module, LayerAdaptation]]:
    """The adapted layers of a model with their names and what is attached to them."""
    pairs = ((name, layer, attached(layer)) for name, layer in named_layers(model))
    return [(name, layer, adaptation) for name, layer, adaptation in pairs if adaptation is not None]


def adaptations(model: nn.Module) -> list[Adaptation]:
    """The adaptations in a model: one, unless parts of it were adapted separately."""
    unique = {id(adaptation.shared): adaptation.shared for _, _, adaptation in adapted_layers(model)}
    if not unique:
        raise AdaptationError("the model is not adapted; call predbn.adapt(model, …) first")
    return list(unique.values())
