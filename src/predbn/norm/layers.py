"""Which modules are batch norm layers, what each class does after normalising, and how layers are selected."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from predbn.common import AdaptationError

Layers: TypeAlias = str | Iterable[str] | Callable[[str, nn.Module], bool]
"""A selection of layers, see `select_layers`."""

L = TypeVar("L")

Epilogue: TypeAlias = Callable[[nn.Module, Tensor], Tensor]
"""What a layer's forward does with its normalised input."""

_FROZEN_CLASSES = {"FrozenBatchNorm2d", "FrozenBatchNormAct2d"}
"""Classes of torchvision, timm and detectron2 with the buffers of batch norm that are not subclasses of it."""


def _no_epilogue(layer: Any, y: Tensor) -> Tensor:
    return y


def _drop_and_activation(layer: Any, y: Tensor) -> Tensor:
    """timm fuses these into the layer."""
    if hasattr(layer, "drop"):
        y = layer.drop(y)
    if hasattr(layer, "act"):
        y = layer.act(y)
    return y


_EPILOGUES: dict[tuple[str, str], Epilogue] = {
    ("torch.nn.modules.batchnorm", "_BatchNorm.forward"): _no_epilogue,
    ("torch.nn.modules.batchnorm", "SyncBatchNorm.forward"): _no_epilogue,
    ("torchvision.ops.misc", "FrozenBatchNorm2d.forward"): _no_epilogue,
    ("detectron2.layers.batch_norm", "FrozenBatchNorm2d.forward"): _no_epilogue,
    ("timm.layers.norm_act", "BatchNormAct2d.forward"): _drop_and_activation,
    ("timm.layers.norm_act", "SyncBatchNormAct.forward"): _drop_and_activation,
    ("timm.layers.norm_act", "FrozenBatchNormAct2d.forward"): _drop_and_activation,
}


def epilogue_of(layer_class: type[nn.Module]) -> Epilogue | None:
    """What the class does after normalising; None if we do not know its forward."""
    forward: Any = layer_class.forward
    return _EPILOGUES.get((forward.__module__, forward.__qualname__))


def is_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) or is_frozen(module)


def is_frozen(module: nn.Module) -> bool:
    """Whether the statistics of a layer are fixed by its class: training normalises with them too."""
    names = {cls.__name__ for cls in type(module).__mro__}
    return bool(names & _FROZEN_CLASSES) and hasattr(module, "running_mean") and hasattr(module, "eps")


def _is_scripted_batch_norm(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule) and "BatchNorm" in module.original_name


def named_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every batch norm layer with its name.

    Names are those in the model itself, without the prefixes of DataParallel, DistributedDataParallel and
    torch.compile. A layer that is registered under several names appears once, under the first of them.
    """
    for name, module in unwrapped(model).named_modules():
        if is_batch_norm(module):
            yield name, module


def select_layers(model: nn.Module, layers: Layers) -> list[tuple[str, nn.Module]]:
    """The selected batch norm layers.

    `layers` is "all", "first" or "last" (in the order in which the model registers them), one or several name patterns
    such as "layer4.*", or a predicate of name and layer.
    """
    names: dict[nn.Module, list[str]] = {}
    for name, module in unwrapped(model).named_modules(remove_duplicate=False):
        if is_batch_norm(module) or _is_scripted_batch_norm(module):
            names.setdefault(module, []).append(name)
    selected = [(names[layer][0], layer) for layer in select_by_name(names, layers)]
    for name, layer in selected:
        if isinstance(layer, torch.jit.ScriptModule):
            raise AdaptationError(
                f"layer '{name}' is part of a scripted module, whose layers cannot be changed; adapt the eager model "
                "it was made from, or leave it out with layers=…"
            )
    return selected


def select_by_name(names: dict[L, list[str]], layers: str | Iterable[str] | Callable[[str, L], bool]) -> list[L]:
    """The layers that a selection chooses. One that is registered under several names is selected by any of them."""
    candidates = list(names)
    if callable(layers):
        selected = [layer for layer in candidates if any(layers(name, layer) for name in names[layer])]
        if not selected:
            raise AdaptationError(
                f"the predicate given as layers chose none of the {len(candidates)} batch norm layers"
            )
        return selected
    if layers == "all":
        return candidates
    if layers == "first":
        return candidates[:1]
    if layers == "last":
        return candidates[-1:]
    patterns = [layers] if isinstance(layers, str) else list(layers)
    if not patterns:
        raise AdaptationError('layers is empty; give "all", "first", "last", name patterns or a predicate')
    matching = {p: [layer for layer in candidates if any(fnmatchcase(n, p) for n in names[layer])] for p in patterns}
    for pattern, matched in matching.items():
        if not matched:
            listed = shortened([name for layer in candidates for name in names[layer]])
            raise AdaptationError(f"no batch norm layer matches '{pattern}'; there are {listed}")
    return [layer for layer in candidates if any(layer in matched for matched in matching.values())]


def shortened(names: list[str], most: int = 8) -> str:
    """The first names, and how many there are besides."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … and {len(names) - most} more"


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside DataParallel, DistributedDataParallel and torch.compile."""
    if not isinstance(model, nn.Module):
        raise AdaptationError(f"expected a torch.nn.Module, got {type(model).__name__}")
    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def modules_of(model: nn.Module) -> Iterator[nn.Module]:
    """`model.modules()`, for models with an attribute or method of their own of that name too, as ESPNet has."""
    return nn.Module.modules(model)


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """The parameters and buffers of a model, whatever it calls `parameters` and `buffers` itself."""
    return chain(nn.Module.parameters(model), nn.Module.buffers(model))


def device_of(module: nn.Module) -> torch.device | None:
    """The device of a module's parameters and buffers; None if it has none."""
    return next((t.device for t in tensors_of(module)), None)


def check_model(model: nn.Module) -> None:
    """Raise an error that gives the reason if a model cannot be adapted."""
    for name, module in unwrapped(model).named_modules():
        where = f"'{name}'" if name else "the model"
        origin = type(module).__module__
        if origin.startswith("torch.ao.nn") and ("quantized" in origin or "intrinsic" in origin):
            kind = type(module).__name__
            if is_batch_norm(module) or "bn" in kind.lower():
                raise AdaptationError(
                    f"layer {where} is {origin}.{kind}, a quantised or fused layer whose statistics are fixed; "
                    "adapt the float model before it is fused and quantised"
                )
        if is_batch_norm(module) and _is_uninitialised(module):
            raise AdaptationError(
                f"layer {where} is a {type(module).__name__} that has not seen data; run one batch through the "
                "model before adapting it"
            )
    if isinstance(model, torch.jit.ScriptModule):
        raise AdaptationError(
            f"the model is a scripted module ({model.original_name}), whose layers cannot be changed; adapt the eager "
            "model it was made from"
        )
    if next(named_layers(model), None) is None:
        raise no_batch_norm_error(model)


def _is_uninitialised(module: nn.Module) -> bool:
    tensors = [*module._parameters.values(), *module._buffers.values()]
    return any(isinstance(t, UninitializedBuffer | UninitializedParameter) for t in tensors)


def no_batch_norm_error(model: nn.Module) -> AdaptationError:
    """The error for a model without batch norm: it lists the normalisation layers there are instead."""
    counts: dict[str, int] = {}
    for module in modules_of(model):
        kind = type(module).__name__
        if "norm" in kind.lower() and not any(True for _ in module.children()):
            counts[kind] = counts.get(kind, 0) + 1
    listed = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "no normalisation layer at all"
    return AdaptationError(
        f"{type(model).__name__} has no batch norm layer (found: {listed}). Usual causes: batch norm was already "
        "folded into the convolutions (load the unfolded model), or the architecture uses another normalisation, "
        "which keeps no statistics to replace"
    )


def fingerprint(model: nn.Module, layers: Iterable[str]) -> str:
    """SHA-256 of the layers' names, and of the names and values of all parameters and buffers."""
    checksum = hashlib.sha256(" ".join(layers).encode())
    for name, value in unwrapped(model).state_dict().items():
        checksum.update(name.encode())
        if isinstance(value, Tensor):
            checksum.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return checksum.hexdigest()
