"""Between the layout of arrays (NHWC, channels together) and the one the corruptions work in (NCHW).

OpenCV's interleaving runs several times faster than a strided copy, and treats N images on top of each
other as one tall picture, which is all that a batch is to it.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["planes", "write_planes"]

Images = npt.NDArray[np.uint8]


def planes(images: Images, *, reverse: bool = False) -> Tensor:
    """uint8 NHWC array to a contiguous NCHW tensor; `reverse` turns the channels round (BGR to RGB)."""
    n, height, width, _ = images.shape
    tall = np.ascontiguousarray(images).reshape(n * height, width, 3)
    apart = np.empty((3, n * height, width), dtype=np.uint8)
    cv2.split(tall, list(apart[::-1] if reverse else apart))
    return torch.from_numpy(apart.reshape(3, n, height, width)).transpose(0, 1).contiguous()


def write_planes(x: Tensor, images: Images, *, reverse: bool = False) -> None:
    """Write a uint8 NCHW tensor into a contiguous NHWC array of the same size."""
    n, _, height, width = x.shape
    apart = x.transpose(0, 1).contiguous().numpy().reshape(3, n * height, width)
    cv2.merge(list(apart[::-1] if reverse else apart), images.reshape(n * height, width, 3))
