"""The layers of the normalisation schemes that PyTorch does not have."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["BiasedConv2d", "ScalarAffine", "StandardisedConv2d"]


class StandardisedConv2d(nn.Conv2d):
    """Weight standardisation (Qiao et al. 2019): each filter has mean 0 and variance 1 before it is used.

    ŵ = (w − mean(w)) / sqrt(var(w) + 1e-10), over the inputs and the window of a filter. Done in fp32 whatever
    the precision of the convolution: the sums are over few values and their difference is small.
    """

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight.float()
        var, mean = torch.var_mean(weight, dim=(1, 2, 3), keepdim=True, correction=0)
        weight = (weight - mean) * torch.rsqrt(var + 1e-10)
        result: Tensor = self._conv_forward(input, weight.to(self.weight.dtype), self.bias)
        return result


class BiasedConv2d(nn.Conv2d):
    """Fixup's convolution (Zhang et al. 2019): one learned number is added to the whole input, y = w * (x + b)."""

    def __init__(self, *args: int, **options: int | bool) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input + self.shift)


class ScalarAffine(nn.Module):
    """What Fixup puts where a normalisation was: y = s · x + b with one learned s and b for the whole map."""

    def __init__(self, scaled: bool = True) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(())) if scaled else None
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, input: Tensor) -> Tensor:
        if self.scale is None:
            return input + self.shift
        return input * self.scale + self.shift
