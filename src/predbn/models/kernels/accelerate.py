"""Use the kernels of this folder in the layers of a network that they support."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from types import MethodType
from typing import TypeVar

import torch
from torch import Tensor, nn

from predbn.norm import normalise_and_activate

_LARGEST_IMAGE = 1 << 14
_LARGEST_INPUT = 1 << 30
"""Offsets are 32-bit integers, including those slightly beyond the end that are masked out."""
_CHANNELS = (16, 32, 64)
_SLOW_IN_CUDNN = (16, 32)
"""Numbers of channels for which the kernels of cuDNN are slower."""

Module = TypeVar("Module", bound=nn.Module)


def accelerate(network: Module) -> Module:
    """Make the layers of a network faster for half-precision training on a GPU; its state dict does not change.

    Supported convolutions are replaced. Normalisations of every image by itself get a method `fused` that also adds
    the shortcut and applies the ReLU (see `predbn.models.resnet.activate`). A call that the kernels do not support
    (another precision, an unusual size) is computed as usual. Without Triton nothing is changed.
    """
    if find_spec("triton") is not None:
        _replace_convolutions(network, _CHANNELS)
        for module in network.modules():
            if _is_supported_norm(module):
                module.__dict__["fused"] = MethodType(_normalise, module)
    return network


def accelerate_prediction(network: Module) -> Module:
    """Make the layers of a network faster for half-precision prediction on a GPU.

    Convolutions with 16 and 32 channels are replaced. Batch norm layers get a method `fused` that also adds the
    shortcut and applies the ReLU (see `predbn.models.resnet.activate`), with the statistics of the layer's strategy.
    """
    if find_spec("triton") is not None:
        _replace_convolutions(network, _SLOW_IN_CUDNN)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.__dict__["fused"] = MethodType(normalise_and_activate, module)
    return network


def _replace_convolutions(network: nn.Module, channels: Sequence[int]) -> None:
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and _is_supported_conv(module, channels):
            module._conv_forward = MethodType(_convolve, module)  # type: ignore[method-assign]


def _is_supported_conv(module: nn.Conv2d, channels: Sequence[int]) -> bool:
    """Whether the kernel supports this convolution, and it has one of these numbers of channels."""
    square = module.kernel_size == (3, 3) and module.stride == (1, 1) and module.padding == (1, 1)
    plain = module.groups == 1 and module.dilation == (1, 1) and module.bias is None
    return square and plain and module.in_channels in channels and module.out_channels in channels


def _is_supported_norm(module: nn.Module) -> bool:
    """Whether this normalises every image by itself, with settings that the kernel supports."""
    if isinstance(module, nn.InstanceNorm2d):
        return module.affine and not module.track_running_stats
    return isinstance(module, nn.GroupNorm) and module.affine


def _convolve(module: nn.Conv2d, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if _is_supported_input(input):
        from .conv import conv3x3

        return conv3x3(input, weight)
    result: Tensor = nn.Conv2d._conv_forward(module, input, weight, bias)
    return result


def _normalise(
    module: nn.GroupNorm | nn.InstanceNorm2d, input: Tensor, shortcut: Tensor | None, relu: bool
) -> Tensor | None:
    """relu(module(input) + shortcut), or None if the kernel does not support this call.

    Not in evaluation, where hooks of the module are to see its output.
    """
    if not module.training or not _is_supported_input(input):
        return None
    pixels = input[0, 0].numel()
    if input[0].numel() > _LARGEST_IMAGE or pixels & (pixels - 1):
        return None
    from .image_norm import image_norm

    return image_norm(module, input, shortcut, relu=relu)


def _is_supported_input(input: Tensor) -> bool:
    is_half = input.dtype in (torch.bfloat16, torch.float16)
    fits_offsets = 0 < input.numel() <= _LARGEST_INPUT
    return input.is_cuda and is_half and input.ndim == 4 and input.shape[1] in _CHANNELS and fits_offsets
