"""A batch norm layer that takes its statistics from a strategy in `.eval()` mode.

`attach` gives a layer another class, a subclass of its own, and one plain attribute. Parameters, buffers, hooks, flags
and the object itself stay, so every reference to the layer stays valid, and `detach` gives back the very same layer.

A call of an adapted layer has three steps: observe the batch (`observation.py`), let the strategy choose statistics
(`strategies/`), and normalise with them (`normalise.py`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from predbn.common import AdaptationError

from .adaptation import VERSION, Adaptation, LayerAdaptation
from .auto.passes import running_batch_pass
from .call import Call, call_of, count_layer_call
from .layers import Epilogue, device_of, epilogue_of, named_layers
from .normalise import normalise
from .observation import Observation
from .statistics import Statistics
from .strategies.base import Strategy
from .strategies.train import Train
from .tracing import is_exporting, is_tracing, is_transformed


def adapted_batch_norm(
    adaptation: LayerAdaptation,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    source: tuple[Tensor | None, Tensor | None],
) -> Tensor | None:
    """What takes the place of a call of torch's batch_norm with these arguments; None if the call is to be made, in a
    pass that only looks at the batch."""
    call, batch_pass = call_of(adaptation, x), running_batch_pass()
    is_plain = is_kept = False
    try:
        observation = Observation(x, adaptation, call, eps, source)
        if batch_pass is not None and batch_pass.adaptation is adaptation.shared:
            batch_pass.look(observation)
            is_plain = batch_pass.is_plain
        chosen = observation.source if is_plain else _choose(adaptation.shared.strategy, observation, x)
        if observation.is_rejected:
            call.reject()
        is_kept = True
    finally:
        if call.model is None:
            call.end(keep=is_kept)
    _report(adaptation, call, observation, chosen, x)
    if is_plain or chosen is None:
        return None
    return normalise(x, chosen, weight, bias, eps, observation.segments)


def _choose(strategy: Strategy, observation: Observation, x: Tensor) -> Statistics:
    """The strategy is asked once for the streams of each part of the pass."""
    parts = observation.parts
    if len(parts) <= 1:
        return strategy.statistics(observation)
    chosen = [strategy.statistics(observation.of_part(part)) for part in parts]
    order = torch.cat([part.index(x.device) for part in parts]).argsort()
    mean, var = (
        torch.cat([t.expand(len(part.streams), -1) for t, part in zip(values, parts, strict=True)])
        for values in zip(*chosen, strict=True)
    )
    return Statistics(mean.index_select(0, order), var.index_select(0, order))


def _report(
    adaptation: LayerAdaptation, call: Call, observation: Observation, chosen: Statistics | None, x: Tensor
) -> None:
    """Keep what `describe` shows, and tell the observer."""
    seen, is_known = observation.seen, not is_transformed(x)
    adaptation.seen = _detached(seen) if is_known and seen is not None else None
    adaptation.used = _detached(chosen) if is_known and chosen is not None else None
    if adaptation.shared.observer is not None and chosen is not None:
        adaptation.shared.observer(observation, chosen)
    if observation.bad_rows and call.counts:
        adaptation.bad_rows += observation.bad_rows
        adaptation.shared.warn_of_bad_rows(adaptation.name, observation.bad_rows)


def _detached(statistics: Statistics) -> Statistics:
    mean, var = statistics
    return Statistics(mean.detach(), var.detach()) if mean.requires_grad or var.requires_grad else statistics


def _check_context(adaptation: LayerAdaptation, layer: Any) -> None:
    """Raise an error if the layer cannot be run where it is: in an exporter, or in a replica."""
    strategy = adaptation.shared.strategy
    if not strategy.keeps_state:
        if not torch.compiler.is_compiling() and torch._C._is_tracing() and torch.onnx.is_in_onnx_export():
            raise AdaptationError(
                "torch.onnx.export with dynamo=False writes wrong or invalid files for adapted models; use dynamo=True"
            )
        return
    if is_exporting() or (is_tracing() and not torch.compiler.is_dynamo_compiling()):
        raise AdaptationError(
            f"strategy '{strategy.name}' keeps state from batch to batch, which an exported graph cannot; "
            "export predbn.fold(model), which fixes the statistics, or use 'batch' or 'prior'"
        )
    if layer.__dict__.get("_is_replica"):
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
        layer: Any = self
        adaptation: Any = self.__dict__.get("_predbn")  # LayerAdaptation or None
        # A forward that was set on the instance may call this one although we do not know what it does around that
        # call, or although the layer is adapted no longer.
        is_adapted = adaptation is not None and self._predbn_epilogue is not None
        if not is_adapted or _is_unchanged(self) or _is_empty(adaptation, input):
            return cast(Tensor, getattr(self, "_predbn_source", type(self)).forward(self, input))
        check_input = getattr(self, "_check_input_dim", None)
        if check_input is not None:
            check_input(input)
        _check_context(adaptation, layer)
        running = layer.running_mean, layer.running_var
        y = adapted_batch_norm(adaptation, input, layer.weight, layer.bias, adaptation.eps(layer), running)
        if y is None:
            return cast(Tensor, getattr(self, "_predbn_source", type(self)).forward(self, input))
        return self._predbn_epilogue(self, y)  # type: ignore[misc]

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """If the layer is moved, its states and calibration move along; their precision stays."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = device_of(self)
        if device is not None:
            self._predbn.moved(device)
        return self

    def extra_repr(self) -> str:
        return ", ".join(part for part in (super().extra_repr(), f"strategy={self._predbn.shared.strategy}") if part)

    def __prepare_scriptable__(self) -> nn.Module:
        """Called by torch.jit.script."""
        raise AdaptationError(
            f"torch.jit.script cannot compile layer '{self._predbn.name}', which is adapted; use torch.jit.trace, "
            "torch.compile or torch.export, or script predbn.fold(model) or the model before it is adapted"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        """The class is created at run time: pickle and copy create it again from the source class."""
        arguments = source_class(self), "_predbn_forward" in self.__dict__
        return _new_adapted_layer, arguments, self.__dict__.copy()


def _is_unchanged(layer: AdaptedLayer) -> bool:
    """Whether the layer does what it did before it was adapted: in training mode, and with "train". Also counts the
    call."""
    shared = layer._predbn.shared
    if _is_training(layer):
        return True
    is_train = type(shared.strategy) is Train and shared.observer is None
    return is_train and shared.eps is None and shared.group is None


def _is_training(layer: AdaptedLayer) -> bool:
    """Frozen layers do the same in both modes, and timm creates them in training mode whatever the model's mode is."""
    model = count_layer_call()
    is_training = layer.training and (model is None or isinstance(layer, _BatchNorm) or model.training)
    if is_training and isinstance(layer, _BatchNorm) and layer.running_mean is not None and not is_tracing():
        layer._predbn.shared.warn_of_training()
    return is_training


def _is_empty(adaptation: LayerAdaptation, x: Any) -> bool:
    """Whether there is nothing to normalise, here and in other processes."""
    if not isinstance(x, Tensor):
        raise AdaptationError(f"layer '{adaptation.name}' got a {type(x).__name__}, not a Tensor")
    return x.numel() == 0 and not adaptation.shared.sync


class InterceptedLayer(AdaptedLayer):
    """An adapted layer whose forward we do not know, or that has one set on the instance, as accelerate does.

    It is run, and its call of torch's batch_norm is replaced.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        forward = self.__dict__.get("_predbn_forward") or super(AdaptedLayer, self).forward
        if _is_unchanged(self):
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
            names = _FUNCTIONAL_ARGUMENTS
        elif func is torch.batch_norm:
            names = _TORCH_ARGUMENTS
        else:
            return func(*args, **kwargs)
        self.called = True
        given = {"weight": None, "bias": None, "eps": 1e-5, **dict(zip(names, args, strict=False)), **kwargs}
        shared, layer = self.adaptation.shared, cast(Any, self.layer)
        if _is_empty(self.adaptation, given["input"]):
            return func(*args, **kwargs)
        _check_context(self.adaptation, layer)
        eps = float(given["eps"]) if shared.eps is None else shared.eps
        source = given["running_mean"], given["running_var"]
        if source[0] is None or source[1] is None:
            source = layer.running_mean, layer.running_var
        y = adapted_batch_norm(self.adaptation, given["input"], given["weight"], given["bias"], eps, source)
        return func(*args, **kwargs) if y is None else y


_FUNCTIONAL_ARGUMENTS = "input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"
_TORCH_ARGUMENTS = "input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"


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
    VERSION.count += 1
    attributes = layer.__dict__
    if "forward" in attributes and not isinstance(layer, AdaptedLayer):
        attributes["_predbn_forward"] = attributes.pop("forward")
    layer.__class__ = _adapted_class(source_class(layer), "_predbn_forward" in attributes)  # type: ignore[arg-type]
    attributes["_predbn"] = adaptation


def detach(layer: nn.Module) -> None:
    """Make an adapted layer the layer it was."""
    VERSION.count += 1
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
