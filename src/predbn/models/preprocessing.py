"""How an image is prepared for a network: part of the model, so that it cannot be fed wrong inputs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, Literal

import torch
from torch import Tensor, nn

from predbn.common import ModelError
from predbn.data import ResizeCrop, resize_crop

_MAX_SCALED_STD = 0.6
"""No network divides pixels from 0 to 255 by so little: such a std is for pixels from 0 to 1."""


@dataclass(frozen=True)
class Preprocessing:
    """From pixels to network inputs: x = (pixel − mean) / std per channel, with pixels from 0 to 255.

    `size` is the height and width that the network was trained for. Images of another size are brought to it when
    they are decoded: the shorter side is resized to `resize` with `interpolation`, then the centre is cropped. `mean`
    and `std` have one number for each channel, in the order that the network takes; pictures are decoded as grey ones
    for a single channel. `floats` says that images are prepared already: they are floats instead of pixels.
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: Literal["rgb", "bgr"] = "rgb"
    resize: int | None = None
    interpolation: Literal["bilinear", "bicubic", "lanczos", "nearest"] = "bilinear"
    floats: bool = False

    def __post_init__(self) -> None:
        if not _are_numbers(self.size, 2, Integral) or min(self.size) < 1:
            raise ModelError(f"size must be (height, width), such as (224, 224), but got {self.size}.")
        channels = len(self.mean) if isinstance(self.mean, tuple | list) else 0
        if not (channels and _are_numbers(self.mean, channels, Real) and _are_numbers(self.std, channels, Real)):
            raise ModelError(f"The mean {self.mean} and std {self.std} must have one number for each channel.")
        if not all(math.isfinite(m) and 0 < s < math.inf for m, s in zip(self.mean, self.std, strict=True)):
            raise ModelError(f"The mean {self.mean} and std {self.std} must be finite, and std greater than 0.")
        if max(self.std) <= _MAX_SCALED_STD and max(self.mean) <= 1 and not self.floats:
            raise ModelError(
                f"Expected mean and std for pixels from 0 to 255, but {self.mean} and {self.std} are for pixels from 0 "
                "to 1: multiply both by 255."
            )
        if self.resize is not None and not (_are_numbers((self.resize,), 1, Integral) and self.resize >= 1):
            raise ModelError(f"The resized side {self.resize!r} must be an int of at least 1.")
        if self.channels not in ("rgb", "bgr"):
            raise ModelError(f"The order of channels {self.channels!r} must be rgb or bgr.")
        if not isinstance(self.interpolation, str):
            raise ModelError(f"The interpolation {self.interpolation!r} must be a string, such as bilinear.")

    @property
    def in_channels(self) -> int:
        return len(self.mean)

    @property
    def values(self) -> int:
        """How many numbers one image has."""
        return self.in_channels * self.size[0] * self.size[1]

    def example(self) -> Tensor:
        """Two black images."""
        return torch.zeros(2, self.in_channels, *self.size, dtype=torch.float32 if self.floats else torch.uint8)

    @property
    def crop(self) -> ResizeCrop:
        """How pictures of any size are brought to that of the network when they are decoded."""
        return resize_crop(self.size, self.resize, self.interpolation, self.in_channels)

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def _are_numbers(values: Any, count: int, kind: type) -> bool:
    is_row = isinstance(values, tuple | list) and len(values) == count
    return is_row and all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


SIGNED = Preprocessing((32, 32), mean=(127.5, 127.5, 127.5), std=(127.5, 127.5, 127.5))
"""The paper's CIFAR-10 input: pixels scaled to [−1, 1]."""

CAFFE = Preprocessing((224, 224), mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), channels="bgr", resize=256)
"""The input of the Keras ResNet-50 v1 weights: BGR, minus the mean of ImageNet, not scaled."""

IMAGENET = Preprocessing((224, 224), (123.675, 116.28, 103.53), (58.395, 57.12, 57.375), resize=256)
"""The usual input of ImageNet networks: RGB, each channel with mean 0 and variance 1 over the training images."""


class Normalise(nn.Module):
    """The arithmetic of a Preprocessing on a uint8 batch [N, C, H, W], in one multiplication and one addition.

    takes_floats   whether pixels may be floats from 0 to 255 as well, so that gradients can reach them. By default
                   floats are refused: most of them are scaled already.
    """

    takes_floats = False
    scale: Tensor
    shift: Tensor

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.preprocessing = preprocessing
        std = torch.tensor(preprocessing.std, dtype=torch.float64).view(1, -1, 1, 1)
        mean = torch.tensor(preprocessing.mean, dtype=torch.float64).view(1, -1, 1, 1)
        self.register_buffer("scale", (1 / std).float(), persistent=False)
        self.register_buffer("shift", (-mean / std).float(), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        floats, channels = self.preprocessing.floats, self.preprocessing.in_channels
        is_accepted = images.dtype == torch.uint8 and not floats
        is_accepted |= (floats or self.takes_floats) and images.is_floating_point()
        if not is_accepted or images.ndim != 4 or images.shape[1] != channels:
            dtype = str(images.dtype).removeprefix("torch.")
            expected = f"floats [N, {channels}, height, width]" if floats else f"uint8 [N, {channels}, height, width]"
            remedy = "pass what the loader yields" if floats else "pass the pixels as they are"
            raise ModelError(
                f"The images are {dtype} {list(images.shape)}, but the model takes {expected} and "
                f"{'does not scale them' if floats else 'scales them itself'}: {remedy}."
            )
        if tuple(images.shape[2:]) != self.preprocessing.size:
            height, width = self.preprocessing.size
            raise ModelError(
                f"The images are {images.shape[2]}×{images.shape[3]}, but the model takes {height}×{width}: "
                "resize them, or load the data at that size."
            )
        if self.preprocessing.channels == "bgr":
            images = images.flip(1)
        return torch.addcmul(self.shift, images.to(self.scale.dtype), self.scale)
