"""The normalisation schemes the paper compares, as choices of layers for one ResNet.

| name | what normalises |
|---|---|
| batch | batch normalisation |
| instance | each channel of each image by itself |
| layer | each image over all channels and positions |
| group | each image over two groups of channels, with weight standardisation |
| fixup | nothing: Fixup's initialisation and scalar biases keep the network trainable |
| last | nothing but one batch normalisation before the final linear layer, the rest as in fixup |
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from predbn.common import ModelError

from .layers import BiasedConv2d, ScalarAffine, StandardisedConv2d

__all__ = ["NORMALISATIONS", "Normalisation", "find"]

BATCH_MOMENTUM = 0.01
"""Keras's 0.99: running statistics are averages over about a hundred batches."""


@dataclass(frozen=True)
class Normalisation:
    """The layers of one scheme.

    `norm(channels, eps)` follows a convolution, `branch_end(channels, eps)` the last one of a residual branch,
    `shortcut(channels, eps)` the projection; `before_linear(channels, eps)` stands before the linear layer.
    """

    name: str
    norm: Callable[[int, float], nn.Module]
    branch_end: Callable[[int, float], nn.Module]
    shortcut: Callable[[int, float], nn.Module]
    conv: type[nn.Conv2d] = nn.Conv2d
    before_linear: Callable[[int, float], nn.Module] | None = None
    fixup: bool = False


def _same(name: str, norm: Callable[[int, float], nn.Module], conv: type[nn.Conv2d] = nn.Conv2d) -> Normalisation:
    return Normalisation(name, norm, norm, norm, conv)


def _fixup(name: str, before_linear: Callable[[int, float], nn.Module] | None = None) -> Normalisation:
    return Normalisation(
        name,
        norm=lambda channels, eps: ScalarAffine(scaled=False),
        branch_end=lambda channels, eps: ScalarAffine(),
        shortcut=lambda channels, eps: nn.Identity(),
        conv=BiasedConv2d,
        before_linear=before_linear,
        fixup=True,
    )


NORMALISATIONS = {
    scheme.name: scheme
    for scheme in (
        _same("batch", lambda channels, eps: nn.BatchNorm2d(channels, eps=eps, momentum=BATCH_MOMENTUM)),
        _same("instance", lambda channels, eps: nn.InstanceNorm2d(channels, eps=eps, affine=True)),
        _same("layer", lambda channels, eps: nn.GroupNorm(1, channels, eps=eps)),
        _same("group", lambda channels, eps: nn.GroupNorm(2, channels, eps=eps), StandardisedConv2d),
        _fixup("fixup"),
        _fixup("last", lambda channels, eps: nn.BatchNorm1d(channels, eps=eps, momentum=BATCH_MOMENTUM)),
    )
}


def find(name: str) -> Normalisation:
    """The scheme of that name, or a ModelError that names the nearest."""
    if name in NORMALISATIONS:
        return NORMALISATIONS[name]
    near = difflib.get_close_matches(name, NORMALISATIONS, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ModelError(f"There is no normalisation {name!r}: there are {', '.join(NORMALISATIONS)}{hint}")
