"""The normalisation schemes that the paper compares, as choices of layers for one ResNet.

| name | what is normalised |
|---|---|
| batch | each channel over the batch: batch normalisation |
| instance | each channel of each image |
| layer | each image over all channels and positions |
| group | each image over two groups of channels, with weight standardisation |
| fixup | nothing: Fixup's initialisation and scalar biases keep the network trainable |
| last | only the input of the final linear layer, by one batch normalisation; the rest as in fixup |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from predbn.common import ModelError, look_up

BATCH_MOMENTUM = 0.01
"""Keras's 0.99: running statistics are averages over about a hundred batches."""


class StandardisedConv2d(nn.Conv2d):
    """Weight standardisation (Qiao et al. 2019): each filter has mean 0 and variance 1 before it is used.

    ŵ = (w − mean(w)) / sqrt(var(w) + 1e-10), over the input channels and the window of a filter. Computed in fp32
    whatever the precision of the convolution: the sums are over few values and their difference is small.
    """

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight.float()
        var, mean = torch.var_mean(weight, dim=(1, 2, 3), keepdim=True, correction=0)
        weight = (weight - mean) * torch.rsqrt(var + 1e-10)
        output: Tensor = self._conv_forward(input, weight.to(self.weight.dtype), self.bias)
        return output


class BiasedConv2d(nn.Conv2d):
    """Fixup's convolution (Zhang et al. 2019): one learned number is added to the whole input, y = w * (x + b)."""

    def __init__(self, *args: int, **options: int | bool) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + self.shift)


class ScalarAffine(nn.Module):
    """Fixup's replacement for a normalisation layer: y = s · x + b with one learned s and b for the whole map."""

    def __init__(self, scaled: bool = True) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(())) if scaled else None
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, input: Tensor) -> Tensor:
        if self.scale is None:
            return input + self.shift
        return input * self.scale + self.shift


@dataclass(frozen=True)
class Normalisation:
    """The layers of one scheme, each built by a function of the number of channels and eps.

    `norm` follows a convolution, `branch_end` the last convolution of a residual branch, `shortcut` the projection;
    `before_linear` comes before the final linear layer.
    """

    name: str
    norm: Callable[[int, float], nn.Module]
    branch_end: Callable[[int, float], nn.Module]
    shortcut: Callable[[int, float], nn.Module]
    conv: type[nn.Conv2d] = nn.Conv2d
    before_linear: Callable[[int, float], nn.Module] | None = None
    fixup: bool = False


def _everywhere(name: str, norm: Callable[[int, float], nn.Module], conv: type[nn.Conv2d] = nn.Conv2d) -> Normalisation:
    """A scheme with the same normalisation in every place."""
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
        _everywhere("batch", lambda channels, eps: nn.BatchNorm2d(channels, eps=eps, momentum=BATCH_MOMENTUM)),
        _everywhere("instance", lambda channels, eps: nn.InstanceNorm2d(channels, eps=eps, affine=True)),
        _everywhere("layer", lambda channels, eps: nn.GroupNorm(1, channels, eps=eps)),
        _everywhere("group", lambda channels, eps: nn.GroupNorm(2, channels, eps=eps), StandardisedConv2d),
        _fixup("fixup"),
        _fixup("last", lambda channels, eps: nn.BatchNorm1d(channels, eps=eps, momentum=BATCH_MOMENTUM)),
    )
}


def find_normalisation(name: str) -> Normalisation:
    """The scheme with that name, or a ModelError that suggests the most similar one."""
    return look_up("normalisation", NORMALISATIONS, name, error=ModelError)
