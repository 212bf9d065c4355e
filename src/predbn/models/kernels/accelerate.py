"""Put the kernels of this room where a network's layers fit them."""

from __future__ import annotations

from importlib.util import find_spec
from types import MethodType
from typing import TypeVar

import torch
from torch import Tensor, nn

from ..normalisation import ScalarAffine

__all__ = ["accelerate", "accelerate_prediction"]

_LARGEST_IMAGE = 1 << 14
_LARGEST_INPUT = 1 << 30
"""Places are counted in 32 bits, also those a little beyond the end that are masked out."""
_CHANNELS = (16, 32, 64)
_SLOW_ELSEWHERE = 16
"""Channels of the convolutions for which cuDNN's own choice is poor, unless it may try and then differ run by run."""

Module = TypeVar("Module", bound=nn.Module)


def accelerate(network: Module) -> Module:
    """The same network with faster layers for half-precision training on a GPU; its state dict stays what it was.

    Convolutions are replaced where they fit; normalisations get a `fused` form that does the addition of the shortcut
    and the ReLU too (see `predbn.models.resnet.activate`). What does not fit when it is called (another precision,
    evaluation, an odd size) is done as always. Without Triton nothing is changed.
    """
    if find_spec("triton") is None:
        return network
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            if _is_small(module):
                module._conv_forward = MethodType(_convolve, module)  # type: ignore[method-assign]
        elif _is_usual(module):
            module.__dict__["fused"] = MethodType(_normalise, module)
        elif isinstance(module, ScalarAffine):
            module.__dict__["fused"] = MethodType(_scale, module)
    return network


def accelerate_prediction(network: Module) -> Module:
    """The same network with faster convolutions of 16 channels for half-precision prediction on a GPU.

    Normalisations are left alone: where their statistics come from is for others to say.
    """
    if find_spec("triton") is None:
        return network
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and _is_small(module, (_SLOW_ELSEWHERE,)):
            module._conv_forward = MethodType(_convolve_in_prediction, module)  # type: ignore[method-assign]
    return network


def _is_small(module: nn.Conv2d, channels: tuple[int, ...] = _CHANNELS) -> bool:
    """Whether it is one of the convolutions that the kernel knows."""
    square = module.kernel_size == (3, 3) and module.stride == (1, 1) and module.padding == (1, 1)
    plain = module.groups == 1 and module.dilation == (1, 1) and module.bias is None
    return square and plain and module.in_channels in channels and module.out_channels in channels


def _is_usual(module: nn.Module) -> bool:
    """Whether it is a normalisation with the settings that the kernels know."""
    if isinstance(module, nn.BatchNorm2d):
        return module.affine and module.track_running_stats and module.momentum is not None
    if isinstance(module, nn.InstanceNorm2d):
        return module.affine and not module.track_running_stats
    return isinstance(module, nn.GroupNorm) and module.affine


def _convolve(module: nn.Conv2d, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from .conv import conv3x3

    if _fits(module, input) and weight.dtype == torch.float32:
        return conv3x3(input, weight)
    result: Tensor = nn.Conv2d._conv_forward(module, input, weight, bias)
    return result


def _convolve_in_prediction(module: nn.Conv2d, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    from .conv import conv3x3

    if _is_known(input):
        return conv3x3(input, weight)
    result: Tensor = nn.Conv2d._conv_forward(module, input, weight, bias)
    return result


def _normalise(
    module: nn.BatchNorm2d | nn.GroupNorm | nn.InstanceNorm2d, input: Tensor, shortcut: Tensor | None, relu: bool
) -> Tensor | None:
    if not _fits(module, input):
        return None
    if isinstance(module, nn.BatchNorm2d):
        from .batch_norm import batch_norm

        return batch_norm(module, input, shortcut, relu=relu)
    pixels = input[0, 0].numel()
    if input[0].numel() > _LARGEST_IMAGE or pixels & (pixels - 1):
        return None
    from .image_norm import image_norm

    return image_norm(module, input, shortcut, relu=relu)


def _scale(module: ScalarAffine, input: Tensor, shortcut: Tensor | None, relu: bool) -> Tensor | None:
    if not _fits(module, input):
        return None
    from .scalar_affine import scalar_affine

    return scalar_affine(input, module.scale, module.shift, shortcut, relu=relu)


def _fits(module: nn.Module, input: Tensor) -> bool:
    return module.training and _is_known(input)


def _is_known(input: Tensor) -> bool:
    half = input.dtype in (torch.bfloat16, torch.float16)
    countable = 0 < input.numel() <= _LARGEST_INPUT
    return input.is_cuda and half and input.ndim == 4 and input.shape[1] in _CHANNELS and countable
