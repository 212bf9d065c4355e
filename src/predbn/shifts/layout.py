"""Between the layout of the caller's batch and the one that a corruption works in.

Arrays are NHWC (the channels of a pixel together), tensors NCHW (a plane for each channel); a corruption may
want either. OpenCV's interleaving runs several times faster than a strided copy on a CPU, and treats N images
on top of each other as one tall picture, which is all that a batch is to it.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["load_pixels", "load_planes", "store_pixels", "store_planes"]

Images = npt.NDArray[np.uint8]


def _split(images: Images) -> Tensor:
    """NHWC array to NCHW tensor."""
    n, height, width, _ = images.shape
    tall = np.ascontiguousarray(images).reshape(n * height, width, 3)
    apart = np.empty((3, n * height, width), dtype=np.uint8)
    cv2.split(tall, list(apart))
    return torch.from_numpy(apart.reshape(3, n, height, width)).transpose(0, 1).contiguous()


def _merge(x: Tensor, images: Images) -> None:
    """NCHW tensor into a contiguous NHWC array."""
    n, _, height, width = x.shape
    apart = x.transpose(0, 1).contiguous().numpy().reshape(3, n * height, width)
    cv2.merge(list(apart), images.reshape(n * height, width, 3))


def load_planes(batch: Images | Tensor) -> Tensor:
    """The batch as a contiguous uint8 tensor NCHW."""
    return batch.contiguous() if isinstance(batch, Tensor) else _split(batch)


def store_planes(done: Tensor, target: Images | Tensor) -> None:
    """Write a uint8 tensor NCHW into the caller's kind of batch."""
    if isinstance(target, Tensor):
        target.copy_(done)
    else:
        _merge(done, target)


def load_pixels(batch: Images | Tensor) -> Tensor:
    """The batch as a contiguous uint8 tensor NHWC."""
    if not isinstance(batch, Tensor):
        writable = batch if batch.flags.writeable else batch.copy()
        return torch.from_numpy(np.ascontiguousarray(writable))
    if batch.device.type != "cpu":
        return batch.permute(0, 2, 3, 1).contiguous()
    pixels = torch.empty(len(batch), *batch.shape[2:], 3, dtype=torch.uint8)
    _merge(batch, pixels.numpy())
    return pixels


def store_pixels(done: Tensor, target: Images | Tensor) -> None:
    """Write a uint8 tensor NHWC into the caller's kind of batch."""
    if not isinstance(target, Tensor):
        np.copyto(target, done.numpy())
    elif target.device.type != "cpu":
        target.copy_(done.permute(0, 3, 1, 2))
    else:
        target.copy_(_split(done.numpy()))
