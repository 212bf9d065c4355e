"""A batch norm layer that takes its statistics from a strategy in `.eval()` mode.

`attach` gives a layer another class, a subclass of its own, and one plain attribute. Parameters, buffers, hooks, flags
and the object itself stay, so every reference to the layer stays valid, and `detach` gives back the very same layer.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from predbn.common import AdaptationError

from . import kernels
from .calibration import Calibration
from .cast_cache import CastCache
from .layers import Epilogue, device_of, epilogue_of, named_layers
from .observation import Observation, is_known_finite, undefined_variance_error
from .passes import Pass, PassOfThread, Stream, current_pass
from .statistics import LazyStatistics, Statistics
from .strategies import Strategy
from .stream_blocks import current_stream

DEFAULT_STREAM = "default"
"""The stream that is used outside of any `stream(…)` block."""


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
        layer_count: int = 1,
    ) -> None:
        self.strategy = strategy
        self.eps = eps
        self.sync = sync
        self.process_group = process_group
        self.group = group
        self.layer_count = layer_count
        self.streams: dict[Hashable, Stream] = {DEFAULT_STREAM: Stream()}
        self.thread = PassOfThread()
        self.traced_pass: Pass | None = None
        self.has_warned = False

    @property
    def default_stream(self) -> Stream:
        return self.streams[DEFAULT_STREAM]

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no pass. Process groups belong to this process and cannot be copied."""
        return {k: v for k, v in self.__dict__.items() if k not in ("thread", "traced_pass", "process_group")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, thread=PassOfThread(), traced_pass=None, process_group=None)


class LayerAdaptation:
    """What `adapt` attaches to one layer: its own data, and in `shared` what it shares with the other layers."""

    def __init__(self, name: str, shared: Adaptation, calibration: Calibration | None = None) -> None:
        self.name = name
        self.shared = shared
        self.calibration = calibration
        self.last_batch: LazyStatistics | None = None
        self.bad_rows = 0
        self._affine = CastCache()
        self._source = CastCache()

    def eps(self, layer: Any) -> float:
        return float(layer.eps) if self.shared.eps is None else self.shared.eps

    def normalise(self, layer: Any, x: Tensor) -> Tensor:
        shared, eps, dtype = self.shared, self.eps(layer), kernels.stats_dtype(x)
        strategy = shared.strategy
        if strategy.keeps_state:
            self._check_state_can_be_kept(layer)
        if strategy.uses_batch_alone and not shared.sync and shared.group is None:
            if x.numel() == x.shape[1]:
                raise undefined_variance_error(self.name, x)
            y, batch = kernels.batch_norm(x, *self._affine.get(dtype, layer.weight, layer.bias), eps)
            if is_known_finite(batch.mean, batch.spread):
                if not kernels.is_tracing():
                    self.last_batch = batch
                return y
        running_pass, own_pass = None, None
        if strategy.keeps_state:
            running_pass = current_pass(shared)
            own_pass = Pass(current_stream(shared)) if running_pass is None else None
        observation = Observation(
            x,
            layer=self.name,
            layer_count=shared.layer_count,
            eps=eps,
            source=self._source_statistics(layer, dtype),
            calibration=self.calibration,
            memory=running_pass or own_pass or shared.default_stream,
            sync=shared.sync,
            process_group=shared.process_group,
            group=shared.group,
        )
        is_kept = False
        try:
            statistics = observation.per_example(strategy.statistics(observation))
            is_kept = True
        finally:
            if own_pass is not None:
                own_pass.end(keep=is_kept)
        if observation.bad_rows:
            self._report_bad_rows(observation.bad_rows)
        mean, var = (t.to(x.device, dtype) for t in statistics)
        if not kernels.is_tracing() and observation.batch_statistics is not None:
            batch_mean, batch_var = observation.batch_statistics
            self.last_batch = LazyStatistics(batch_mean.detach(), batch_var.detach())
        return kernels.normalise(x, mean, var, *self._affine.get(dtype, layer.weight, layer.bias), eps)

    def _source_statistics(self, layer: Any, dtype: torch.dtype) -> Statistics | None:
        mean, var = self._source.get(dtype, layer.running_mean, layer.running_var)
        return None if mean is None or var is None else Statistics(mean, var)

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

    def _check_state_can_be_kept(self, layer: Any) -> None:
        strategy = self.shared.strategy
        if torch.compiler.is_exporting() or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():
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
    _predbn_epilogue: Epilogue | None

    def forward(self, input: Tensor) -> Tensor:
        adaptation = self._predbn
        shared = adaptation.shared
        unchanged = shared.strategy.is_identity and shared.eps is None and shared.group is None
        if self.training or unchanged or (input.shape[0] == 0 and not shared.sync):
            return cast(Tensor, super().forward(input))
        epilogue = self._predbn_epilogue
        if epilogue is None:
            with _ReplaceBatchNorm(adaptation, self) as replacement:
                y = super().forward(input)
            if not replacement.called:
                raise _unknown_forward_error(adaptation.name, self)
            return cast(Tensor, y)
        check_input = getattr(self, "_check_input_dim", None)
        if check_input is not None:
            check_input(input)
        return epilogue(self, adaptation.normalise(self, input))

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """If the layer is moved, its states and calibration move along; their precision stays."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = device_of(self)
        if device is not None:
            for stream in self._predbn.shared.streams.values():
                state = stream.state(self._predbn.name)
                state.update({k: v.to(device) for k, v in state.items() if isinstance(v, Tensor)})
            calibration = self._predbn.calibration
            if calibration is not None:
                self._predbn.calibration = calibration.to(device)
        return self

    def extra_repr(self) -> str:
        return ", ".join(part for part in (super().extra_repr(), f"strategy={self._predbn.shared.strategy}") if part)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The class is created at run time: pickle and copy create it again from the source class."""
        return _new_adapted_layer, (source_class(self),), self.__dict__.copy()


class _ReplaceBatchNorm(TorchFunctionMode):
    """Runs a forward that we do not know, and normalises in place of its call of torch's batch_norm.

    What the class does before and after that call stays as it is.
    """

    def __init__(self, adaptation: LayerAdaptation, layer: nn.Module) -> None:
        super().__init__()
        self.adaptation, self.layer, self.called = adaptation, layer, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.batch_norm or func is torch.batch_norm:
            self.called = True
            return self.adaptation.normalise(self.layer, args[0] if args else kwargs["input"])
        return func(*args, **(kwargs or {}))


def _unknown_forward_error(name: str, layer: nn.Module) -> AdaptationError:
    cls = source_class(layer)
    return AdaptationError(
        f"layer '{name}' is a {cls.__module__}.{cls.__qualname__}, whose forward does not call torch's batch_norm, so "
        "its statistics cannot be replaced; leave it out with layers=lambda name, layer: …"
    )


_adapted_classes: dict[type[nn.Module], type[nn.Module]] = {}


def _adapted_class(source: type[nn.Module]) -> type[nn.Module]:
    """The adapted subclass of `source`.

    It claims to come from the source's module, because torch.fx and other tools recognise torch.nn layers by that.
    """
    if source in _adapted_classes:
        return _adapted_classes[source]
    epilogue = epilogue_of(source)
    attributes = {
        "__module__": source.__module__,
        "__doc__": source.__doc__,
        "_predbn_source": source,
        "_predbn_epilogue": None if epilogue is None else staticmethod(epilogue),
    }
    created = type(f"Adapted{source.__name__}", (AdaptedLayer, source), attributes)
    return _adapted_classes.setdefault(source, created)


def _new_adapted_layer(source: type[nn.Module]) -> nn.Module:
    cls = _adapted_class(source)
    return cls.__new__(cls)


def source_class(layer: nn.Module) -> type[nn.Module]:
    """The class that the layer has when it is not adapted."""
    return getattr(type(layer), "_predbn_source", type(layer))


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
    layer.__class__ = _adapted_class(source_class(layer))
    layer.__dict__["_predbn"] = adaptation


def detach(layer: nn.Module) -> None:
    """Make an adapted layer the layer it was."""
    layer.__class__ = source_class(layer)
    layer.__dict__.pop("_predbn", None)


def attached(layer: nn.Module) -> LayerAdaptation | None:
    """What is attached to a layer; None if it is not adapted."""
    return layer._predbn if isinstance(layer, AdaptedLayer) else None


def adapted_layers(model: nn.Module) -> list[tuple[str, nn.Module, LayerAdaptation]]:
    """The adapted layers of a model with their names and what is attached to them."""
    pairs = ((name, layer, attached(layer)) for name, layer in named_layers(model))
    return [(name, layer, adaptation) for name, layer, adaptation in pairs if adaptation is not None]
