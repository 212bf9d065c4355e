"""Which modules are batch norm layers, and what each kind does beside normalising."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from predbn.common import AdaptationError

Tail = Callable[[nn.Module, Tensor], Tensor]

_FROZEN_CLASSES = {"FrozenBatchNorm2d", "FrozenBatchNormAct2d"}
"""Layers with the buffers of batch norm that are no subclass of it (torchvision, timm, detectron2)."""


def _nothing(layer: Any, y: Tensor) -> Tensor:
    return y


def _drop_and_activation(layer: Any, y: Tensor) -> Tensor:
    """timm fuses these into the layer."""
    if hasattr(layer, "drop"):
        y = layer.drop(y)
    if hasattr(layer, "act"):
        y = layer.act(y)
    return y


_TAILS: dict[tuple[str, str], Tail] = {
    ("torch.nn.modules.batchnorm", "_BatchNorm.forward"): _nothing,
    ("torch.nn.modules.batchnorm", "SyncBatchNorm.forward"): _nothing,
    ("torchvision.ops.misc", "FrozenBatchNorm2d.forward"): _nothing,
    ("detectron2.layers.batch_norm", "FrozenBatchNorm2d.forward"): _nothing,
    ("timm.layers.norm_act", "BatchNormAct2d.forward"): _drop_and_activation,
    ("timm.layers.norm_act", "SyncBatchNormAct.forward"): _drop_and_activation,
    ("timm.layers.norm_act", "FrozenBatchNormAct2d.forward"): _drop_and_activation,
}


def tail_of(source_class: type[nn.Module]) -> Tail | None:
    """What the class does after normalising; None if its forward is not one we know."""
    forward: Any = source_class.forward
    return _TAILS.get((forward.__module__, forward.__qualname__))


def is_batch_norm(module: nn.Module) -> bool:
    if isinstance(module, _BatchNorm):
        return True
    names = {cls.__name__ for cls in type(module).__mro__}
    return bool(names & _FROZEN_CLASSES) and hasattr(module, "running_mean") and hasattr(module, "eps")


def named_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every batch norm layer with its name in the model itself: the prefixes that DataParallel,
    DistributedDataParallel and torch.compile put before the names are left out. A layer registered
    under several names comes once, under its first."""
    for name, module in unwrapped(model).named_modules():
        if is_batch_norm(module):
            yield name, module


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside the wrappers."""
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def device_of(module: nn.Module) -> torch.device | None:
    """Where a module's parameters and buffers are; None if it has none."""
    return next((t.device for t in [*module.parameters(), *module.buffers()]), None)


def check_model(model: nn.Module) -> None:
    """Refuse what cannot be adapted, each with its reason."""
    if not isinstance(model, nn.Module):
        raise AdaptationError(f"expected a torch.nn.Module, got {type(model).__name__}")
    for name, module in unwrapped(model).named_modules():
        where = f"'{name}'" if name else "the model"
        if isinstance(module, torch.jit.ScriptModule):
            raise AdaptationError(
                f"{where} is a scripted module ({module.original_name}), whose layers cannot be changed; "
                "adapt the eager model it was made from"
            )
        origin = type(module).__module__
        if origin.startswith("torch.ao.nn") and ("quantized" in origin or "intrinsic" in origin):
            kind = type(module).__name__
            if is_batch_norm(module) or "bn" in kind.lower():
                raise AdaptationError(
                    f"layer {where} is {origin}.{kind}, a quantised or fused layer whose statistics are fixed; "
                    "adapt the float model before it is fused and quantised"
                )
        if is_batch_norm(module) and _is_lazy(module):
            raise AdaptationError(
                f"layer {where} is a {type(module).__name__} that has not seen data; run one batch through the "
                "model before adapting it"
            )
    if next(named_layers(model), None) is None:
        raise no_batch_norm(model)


def _is_lazy(module: nn.Module) -> bool:
    tensors = [*module._parameters.values(), *module._buffers.values()]
    return any(isinstance(t, UninitializedBuffer | UninitializedParameter) for t in tensors)


def no_batch_norm(model: nn.Module) -> AdaptationError:
    """Say which normalisation there is instead, and why there may be no batch norm."""
    counts: dict[str, int] = {}
    for module in model.modules():
        kind = type(module).__name__
        if "norm" in kind.lower() and not any(True for _ in module.children()):
            counts[kind] = counts.get(kind, 0) + 1
    found = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "no normalisation layer at all"
    return AdaptationError(
        f"{type(model).__name__} has no batch norm layer (found: {found}). Usual causes: batch norm was already "
        "folded into the convolutions (load the unfolded model), or the architecture uses another normalisation, "
        "which keeps no statistics to replace"
    )
