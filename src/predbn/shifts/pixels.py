"""Layouts of image batches, and the step from float to 8 bits.

Arrays are NHWC (the channels of a pixel are adjacent), tensors are NCHW (one plane per channel), and a corruption may
work on either. On a CPU, OpenCV's split and merge are several times faster than a strided copy; they see a batch of N
images as one tall image.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Images = npt.NDArray[np.uint8]

_SLACK = 2.0**-10


def to_uint8(values: Tensor) -> Tensor:
    """Clip to [0, 255] and truncate to uint8; `values` is overwritten.

    A value that is mathematically an integer comes out of float32 arithmetic a little above or below it, differently
    on each device. Anything less than 2⁻¹⁰ below an integer therefore counts as that integer. Casting by way of int32
    is faster on a CPU.
    """
    return values.add_(_SLACK).clamp_(0.0, 255.0).to(torch.int32).to(torch.uint8)


def load_nchw(batch: Images | Tensor) -> Tensor:
    """The batch as a contiguous uint8 tensor NCHW."""
    return batch.contiguous() if isinstance(batch, Tensor) else _split(batch)


def store_nchw(images: Tensor, target: Images | Tensor) -> None:
    """Write a uint8 tensor NCHW into an array NHWC or a tensor NCHW."""
    if isinstance(target, Tensor):
        target.copy_(images)
    else:
        _merge(images, target)


def load_nhwc(batch: Images | Tensor) -> Tensor:
    """The batch as a contiguous uint8 tensor NHWC."""
    if not isinstance(batch, Tensor):
        writable = batch if batch.flags.writeable else batch.copy()
        return torch.from_numpy(np.ascontiguousarray(writable))
    if batch.device.type != "cpu":
        return batch.permute(0, 2, 3, 1).contiguous()
    images = torch.empty(len(batch), *batch.shape[2:], batch.shape[1], dtype=torch.uint8)
    _merge(batch, images.numpy())
    return images


def store_nhwc(images: Tensor, target: Images | Tensor) -> None:
    """Write a uint8 tensor NHWC into an array NHWC or a tensor NCHW."""
    if not isinstance(target, Tensor):
        np.copyto(target, images.numpy())
    elif target.device.type != "cpu":
        target.copy_(images.permute(0, 3, 1, 2))
    else:
        target.copy_(_split(images.numpy()))


def _split(images: Images) -> Tensor:
    """NHWC array to NCHW tensor."""
    n, height, width, channels = images.shape
    tall = np.ascontiguousarray(images).reshape(n * height, width, channels)
    planes = np.empty((channels, n * height, width), dtype=np.uint8)
    cv2.split(tall, list(planes))
    return torch.from_numpy(planes.reshape(channels, n, height, width)).transpose(0, 1).contiguous()


def _merge(x: Tensor, images: Images) -> None:
    """NCHW tensor into a contiguous NHWC array."""
    n, channels, height, width = x.shape
    planes = x.transpose(0, 1).contiguous().numpy().reshape(channels, n * height, width)
    cv2.merge(list(planes), images.reshape(n * height, width, channels))


def opencv_threads(height: int, width: int) -> int:
    """How many threads are worth using for OpenCV calls on single images of that size.

    Every call releases the interpreter lock and has to get it back. If the call itself takes ten microseconds, many
    threads spend their time waiting for each other: 16 of them need several times as long as one.
    """
    return max(1, height * width // 4096)
