"""A batch norm layer together with what follows it in a residual network: adding the shortcut, and the ReLU.

y = relu(layer(x) + shortcut). On a GPU the memory limits all three. One after the other they read four maps and write
three; at once they read two and write one.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from . import kernels
from .adapted_layer import attached, source_class, source_statistics
from .model_calls import running_call
from .statistics import LazyStatistics
from .stream_blocks import current_selection


def normalise_and_activate(layer: nn.Module, x: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor | None:
    """relu(layer(x) + shortcut), rounded as three operations round; None if our kernels cannot compute it at once.

    They can for `nn.BatchNorm2d` in `.eval()` mode with the stored statistics, and under `batch`. They are not used if
    gradients are needed, nor if a hook of the layer is to see its output.
    """
    if torch.is_grad_enabled() or not _is_plain(layer) or not kernels.can_use_layer_kernels(x):
        return None
    if x.dim() != 4 or x.numel() <= x.shape[1]:
        return None
    if shortcut is not None and not (kernels.can_use_layer_kernels(shortcut) and _is_alike(shortcut, x)):
        return None
    norm = cast(nn.BatchNorm2d, layer)
    parameters = norm.weight, norm.bias, *(source_statistics(norm) or ())
    if any(t is not None and not kernels.can_be_read_by_kernels(t, x) for t in parameters):
        return None
    adaptation = attached(layer)
    eps = norm.eps if adaptation is None else adaptation.eps(norm)
    statistics = _statistics(layer, x) if eps > 0 else None
    if statistics is None:
        return None
    from .gpu.normalise import normalise

    return normalise(x, statistics, norm.weight, norm.bias, eps, shortcut=shortcut, relu=relu)


def _is_plain(layer: nn.Module) -> bool:
    """Whether the layer is PyTorch's own, adapted or not, in `.eval()` mode, and nothing else looks at its output."""
    hooks = layer._forward_hooks, layer._forward_pre_hooks
    everywhere = torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks
    if layer.training or source_class(layer) is not nn.BatchNorm2d or any(hooks) or any(everywhere):
        return False
    return "forward" not in layer.__dict__ and "_predbn_forward" not in layer.__dict__


def _is_alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype and a.device == b.device


def _statistics(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance, [1, C] each, if they are the stored ones or those of the batch; None otherwise."""
    adaptation = attached(layer)
    if adaptation is None or adaptation.shared.is_identity:
        stored = source_statistics(layer)
        if stored is None or stored.mean.dtype != torch.float32:
            return None
        _count_call()
        return stored.mean[None], stored.var[None]
    shared, call = adaptation.shared, running_call()
    if shared.sync or shared.robust or shared.group is not None or shared.watches_drift:
        return None
    own_call = None if call is None else call.of(shared)
    selection = current_selection(shared) if own_call is None else own_call.selection
    if not shared.strategy.uses_batch_alone or selection.rows is not None or selection.examples is not None:
        return None
    from .gpu.sums import moments

    _count_call()
    mean, var = moments(x).unbind()
    adaptation.last_batch = LazyStatistics(mean[0], var[0])
    return mean, var


def _count_call() -> None:
    """Calls of models look whether their layers were called."""
    call = running_call()
    if call is not None:
        call.layer_calls += 1
