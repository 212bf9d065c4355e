"""Put the kernels of this room where a network's layers fit them."""

from __future__ import annotations

from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["accelerate"]

_LARGEST_IMAGE = 1 << 14

Module = TypeVar("Module", bound=nn.Module)


def accelerate(network: Module) -> Module:
    """The same network with faster layers for half-precision training on a GPU; its state dict stays what it was.

    A layer whose input does not fit when it is called (another precision, evaluation, an odd size) does what it
    always did. Without Triton nothing is changed.
    """
    try:
        from .conv import CHANNELS
    except ImportError:
        return network
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            square = module.kernel_size == (3, 3) and module.stride == (1, 1) and module.padding == (1, 1)
            plain = module.groups == 1 and module.dilation == (1, 1) and module.bias is None
            if square and plain and module.in_channels in CHANNELS and module.out_channels in CHANNELS:
                module._conv_forward = MethodType(_convolve, module)  # type: ignore[method-assign]
        elif isinstance(module, (nn.GroupNorm, nn.InstanceNorm2d)) and module.affine:
            module.forward = MethodType(_normalise, module)  # type: ignore[method-assign]
    return network


def _convolve(module: nn.Conv2d, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from .conv import conv3x3

    if module.training and _half(input) and weight.dtype == torch.float32:
        return conv3x3(input, weight)
    result: Tensor = nn.Conv2d._conv_forward(module, input, weight, bias)
    return result


def _normalise(module: Any, input: Tensor) -> Tensor:
    from .norm import group_norm

    pixels = input[0, 0].numel()
    fits = (
        input[0].numel() <= _LARGEST_IMAGE and not pixels & (pixels - 1) and not input.shape[1] & (input.shape[1] - 1)
    )
    if module.training and _half(input) and fits:
        groups = input.shape[1] if isinstance(module, nn.InstanceNorm2d) else module.num_groups
        return group_norm(input, groups, module.weight, module.bias, module.eps)
    result: Tensor = type(module).forward(module, input)
    return result


def _half(input: Tensor) -> bool:
    return input.is_cuda and input.dtype in (torch.bfloat16, torch.float16)
