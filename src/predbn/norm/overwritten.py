"""Statistics that `recompute` has replaced: written all together, and put back bit for bit.

What was there before is kept in a plain attribute of the layer, as tensors in a dictionary: it is copied and pickled
with the model, is no part of its state dict, and can be unpickled without this package.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError

from .layers import named_layers, shortened
from .statistics import Statistics

_ATTRIBUTE = "_predbn_overwritten"
_BUFFERS = "running_mean", "running_var", "num_batches_tracked"


def overwrite(model: nn.Module, statistics: Mapping[nn.Module, Statistics], batches: int) -> None:
    """Write statistics that were measured in so many batches; nothing is written if some do not fit a buffer."""
    new = {
        layer: _new_buffers(name, layer, statistics[layer], batches)
        for name, layer in named_layers(model)
        if layer in statistics
    }
    for layer, values in new.items():
        record = layer.__dict__.get(_ATTRIBUTE)
        # Of a layer that was trained or loaded since, what was before is of no use.
        if record is not None and _has_values(layer, record["new"]):
            old = record["old"]
        else:
            old = {key: buffer.clone() for key, buffer in _buffers(layer).items()}
        layer.__dict__[_ATTRIBUTE] = {"old": old, "new": values}
        _write(layer, values)


def put_back(model: nn.Module) -> None:
    """Undo every `overwrite`."""
    changed = []
    for name, layer in named_layers(model):
        record = layer.__dict__.pop(_ATTRIBUTE, None)
        if record is None:
            continue
        if _has_values(layer, record["new"]):
            _write(layer, record["old"])
        else:
            changed.append(name)
    if changed:
        warnings.warn(
            f"the statistics of {shortened(changed)} have changed since predbn.recompute wrote them, by training or "
            "loading, and stay as they are",
            UserWarning,
            stacklevel=3,
        )


def _new_buffers(name: str, layer: nn.Module, statistics: Statistics, batches: int) -> dict[str, Tensor]:
    """In the dtype of the buffers. The count of batches is the weight that training would give to these statistics
    with `momentum=None`, and tells that there were some."""
    buffers = _buffers(layer)
    values: dict[str, Any] = {"running_mean": statistics.mean, "running_var": statistics.var}
    new = {key: value.to(buffers[key], copy=True) for key, value in values.items()}
    if not all(bool(value.isfinite().all()) for value in new.values()):
        raise AdaptationError(
            f"layer '{name}' has statistics that do not fit its buffers of {new['running_mean'].dtype}; convert the "
            "model to a wider dtype first"
        )
    if "num_batches_tracked" in buffers:
        new["num_batches_tracked"] = torch.full_like(buffers["num_batches_tracked"], batches)
    return new


def _buffers(layer: nn.Module) -> dict[str, Tensor]:
    return {key: value.detach() for key in _BUFFERS if isinstance(value := getattr(layer, key, None), Tensor)}


def _has_values(layer: nn.Module, values: dict[str, Tensor]) -> bool:
    buffers = _buffers(layer)
    return buffers.keys() == values.keys() and all(torch.equal(b, values[key].to(b)) for key, b in buffers.items())


def _write(layer: nn.Module, values: dict[str, Tensor]) -> None:
    """In place, as buffers may be shared. In inference mode both kinds of tensors can be written to."""
    with torch.inference_mode():
        for key, buffer in _buffers(layer).items():
            buffer.copy_(values[key])
