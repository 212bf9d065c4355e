"""A batch norm layer whose `.eval()` means something else.

`adapt` gives a layer another class, a subclass of the one it had, and one plain attribute. Parameters,
buffers, hooks, flags and the object itself stay, so everything that refers to the layer still does,
and taking both away gives back the very same layer.
"""

from __future__ import annotations

import threading
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from predbn.common import AdaptationError

from . import kernels
from .calibration import Calibration
from .cast_cache import Widened
from .kinds import Tail, device_of, tail_of
from .observation import Observation, undefined_variance
from .statistics import Seen, Statistics
from .strategies import Strategy
from .stream import Stream

HOME = "default"
"""The stream that is current outside of any `stream(…)` block."""


class Adaptation:
    """What the layers adapted by one call share."""

    def __init__(
        self,
        strategy: Strategy,
        eps: float | None,
        sync: bool,
        process_group: Any,
        group: int | None = None,
        layers: int = 1,
    ) -> None:
        self.strategy = strategy
        self.eps = eps
        self.sync = sync
        self.process_group = process_group
        self.group = group
        self.layers = layers
        self.streams = {HOME: Stream()}
        self.stream = self.streams[HOME]
        self.lock = threading.RLock()

    def stream_for(self, strategy: Strategy) -> Stream:
        return self.stream if strategy.keeps_state else self.streams[HOME]

    def __getstate__(self) -> dict[str, Any]:
        """Locks and process groups belong to this process and do not travel."""
        return {k: v for k, v in self.__dict__.items() if k not in ("lock", "process_group")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, lock=threading.RLock(), process_group=None)


class Slot:
    """What `adapt` leaves on one layer."""

    def __init__(self, name: str, adaptation: Adaptation, calibration: Calibration | None = None) -> None:
        self.name = name
        self.adaptation = adaptation
        self.calibration = calibration
        self.affine = Widened()
        self.source = Widened()
        self.seen: Seen | None = None

    def eps(self, layer: Any) -> float:
        return float(layer.eps) if self.adaptation.eps is None else self.adaptation.eps

    def normalise(self, layer: Any, x: Tensor) -> Tensor:
        adaptation, eps, dtype = self.adaptation, self.eps(layer), kernels.stats_dtype(x)
        strategy = adaptation.strategy
        if strategy.keeps_state:
            self._refuse_state(layer)
        if strategy.uses_batch_alone and not adaptation.sync and adaptation.group is None:
            if x.numel() == x.shape[1]:
                raise undefined_variance(self.name, x)
            y, seen = kernels.batch_norm(x, *self.affine.get(dtype, layer.weight, layer.bias), eps)
            if not kernels.is_recorded():
                self.seen = seen
            return y
        observation = Observation(
            x,
            layer=self.name,
            layers=adaptation.layers,
            eps=eps,
            source=self._source(layer, dtype),
            calibration=self.calibration,
            stream=adaptation.stream_for(strategy),
            sync=adaptation.sync,
            process_group=adaptation.process_group,
            group=adaptation.group,
        )
        mean, var = (t.to(x.device, dtype) for t in observation.for_examples(strategy.statistics(observation)))
        if not kernels.is_recorded() and observation.batch_seen is not None:
            mean_seen, var_seen = observation.batch_seen
            self.seen = Seen(mean_seen.detach(), var_seen.detach())
        return kernels.normalise(x, mean, var, *self.affine.get(dtype, layer.weight, layer.bias), eps)

    def _source(self, layer: Any, dtype: torch.dtype) -> Statistics | None:
        mean, var = self.source.get(dtype, layer.running_mean, layer.running_var)
        return None if mean is None or var is None else Statistics(mean, var)

    def _refuse_state(self, layer: Any) -> None:
        strategy = self.adaptation.strategy
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
    """Mixed into the class of an adapted layer. In training mode it is the layer it was."""

    _predbn: Slot
    _predbn_tail: Tail | None

    def forward(self, input: Tensor) -> Tensor:
        slot = self._predbn
        adaptation = slot.adaptation
        unchanged = adaptation.strategy.is_identity and adaptation.eps is None and adaptation.group is None
        if self.training or unchanged or (input.shape[0] == 0 and not adaptation.sync):
            return cast(Tensor, super().forward(input))
        tail = self._predbn_tail
        if tail is None:
            with _Intercept(slot, self) as intercept:
                y = super().forward(input)
            if not intercept.called:
                raise _opaque(slot.name, self)
            return cast(Tensor, y)
        check = getattr(self, "_check_input_dim", None)
        if check is not None:
            check(input)
        return tail(self, slot.normalise(self, input))

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Moving the layer moves its statistics; their precision stays."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = device_of(self)
        if device is not None:
            for stream in self._predbn.adaptation.streams.values():
                state = stream.state(self._predbn.name)
                state.update({k: v.to(device) for k, v in state.items() if isinstance(v, Tensor)})
            calibration = self._predbn.calibration
            if calibration is not None:
                self._predbn.calibration = calibration.to(device)
        return self

    def extra_repr(self) -> str:
        return ", ".join(
            part for part in (super().extra_repr(), f"strategy={self._predbn.adaptation.strategy}") if part
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The class is made on the fly: pickle and copy make it again from the source class."""
        return _blank, (source_class(self),), self.__dict__.copy()


def _blank(source: type[nn.Module]) -> nn.Module:
    cls = adapted_class(source)
    return cls.__new__(cls)


_adapted_classes: dict[type[nn.Module], type[nn.Module]] = {}


def adapted_class(source: type[nn.Module]) -> type[nn.Module]:
    """The subclass of `source` that adapts. It claims the source's module, so that tools which treat
    torch.nn layers as units (torch.fx) go on doing so."""
    if source in _adapted_classes:
        return _adapted_classes[source]
    tail = tail_of(source)
    attributes = {
        "__module__": source.__module__,
        "__doc__": source.__doc__,
        "_predbn_source": source,
        "_predbn_tail": None if tail is None else staticmethod(tail),
    }
    made = type(f"Adapted{source.__name__}", (AdaptedLayer, source), attributes)
    return _adapted_classes.setdefault(source, made)


def source_class(layer: nn.Module) -> type[nn.Module]:
    return getattr(type(layer), "_predbn_source", type(layer))


def slot_of(layer: nn.Module) -> Slot | None:
    return layer._predbn if isinstance(layer, AdaptedLayer) else None


def fit(layer: nn.Module, slot: Slot | None) -> None:
    """Make a layer adapted, or with no slot the layer it was."""
    layer.__class__ = source_class(layer) if slot is None else adapted_class(source_class(layer))
    if slot is None:
        layer.__dict__.pop("_predbn", None)
    else:
        layer.__dict__["_predbn"] = slot


def source_statistics(layer: Any) -> Statistics | None:
    if layer.running_mean is None or layer.running_var is None:
        return None
    return Statistics(layer.running_mean, layer.running_var)


class _Intercept(TorchFunctionMode):
    """Runs a forward we do not know, and normalises in place of its call of torch's batch_norm: what
    the class does before and after stays."""

    def __init__(self, slot: Slot, layer: nn.Module) -> None:
        super().__init__()
        self.slot, self.layer, self.called = slot, layer, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.batch_norm or func is torch.batch_norm:
            self.called = True
            return self.slot.normalise(self.layer, args[0] if args else kwargs["input"])
        return func(*args, **(kwargs or {}))


def _opaque(name: str, layer: nn.Module) -> AdaptationError:
    cls = source_class(layer)
    return AdaptationError(
        f"layer '{name}' is a {cls.__module__}.{cls.__qualname__}, whose forward does not call torch's batch_norm, so "
        "its statistics cannot be replaced; leave it out with layers=lambda name, layer: …"
    )
