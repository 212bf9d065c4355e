"""ImageMagick's motion blur, for a batch of images each with an angle of its own.

A pixel becomes a weighted mean of the pixels that lie ahead of it on a line of angle θ:

    y(p) = Σ_i w_i·x(p + o_i),   w_i ∝ exp(−i²/2σ²),   i = 0 … 2·radius,
    o_i = (⌈i·sin θ − ½⌉, ⌈i·cos θ − ½⌉)   in rows and columns

so the Gaussian is one-sided, each sample is a whole pixel, and pixels outside repeat the edge. ImageMagick
rounds the mean to sixteen bits, 257 steps a grey level, and cuts that off to eight when it writes a PNG.
"""

from __future__ import annotations

import math

import cv2
import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["motion_blur_uint8"]

_NEGLIGIBLE = 1e-4
_HALF_STEP = 0.5 / 257


def _weights(radius: float, sigma: float) -> list[float]:
    """The taps, without the tail whose weight is 1e-4 in all (a fortieth of a grey level)."""
    raw = [math.exp(-(i * i) / (2 * sigma * sigma)) for i in range(2 * math.ceil(radius) + 1)]
    enough = (1 - _NEGLIGIBLE) * sum(raw)
    count = next(n for n in range(1, len(raw) + 1) if sum(raw[:n]) >= enough)
    return [value / sum(raw[:count]) for value in raw[:count]]


def _offsets(angle: Tensor, count: int) -> Tensor:
    """[N, count, 2] whole pixels, computed on the host in float64 so that every device has the same."""
    radians = angle.cpu().double().mul(math.pi / 180)
    direction = torch.stack([radians.sin(), radians.cos()], dim=-1)
    steps = torch.arange(count, dtype=torch.float64)
    return (steps[:, None] * direction[:, None, :] - 0.5).ceil().long()


def motion_blur_uint8(x: Tensor, radius: float, sigma: float, angle: Tensor) -> Tensor:
    """Motion blur of a uint8 batch [N, C, H, W], image n by angle[n] degrees."""
    weights = _weights(radius, sigma)
    offsets = _offsets(angle, len(weights))
    above, left = (-int(low) for low in offsets.flatten(0, 1).amin(0))
    below, right = (int(high) for high in offsets.flatten(0, 1).amax(0))
    offsets += torch.tensor([above, left])
    margins = (left, right, above, below)
    blur = _by_slices if x.device.type == "cpu" else _by_gather
    return blur(x, weights, offsets, margins)


def _by_slices(x: Tensor, weights: list[float], offsets: Tensor, margins: tuple[int, ...]) -> Tensor:
    """On a CPU a tap is a slice of the padded image, channels last, which OpenCV scales and adds at once."""
    number, channels, height, width = x.shape
    padded = functional.pad(x.to(torch.float32), margins, mode="replicate")
    sources = padded.permute(0, 2, 3, 1).flatten(2).contiguous().numpy()
    total = torch.full((number, height, width * channels), _HALF_STEP)
    places = (offsets * torch.tensor([1, channels])).tolist()
    for source, target, taps in zip(sources, total.numpy(), places, strict=True):
        for (row, column), weight in zip(taps, weights, strict=True):
            tap = source[row : row + height, column : column + width * channels]
            cv2.scaleAdd(tap, weight, target, target)
    blurred = total.to(torch.int32).to(torch.uint8).view(number, height, width, channels)
    return blurred.permute(0, 3, 1, 2).contiguous()


def _by_gather(x: Tensor, weights: list[float], offsets: Tensor, margins: tuple[int, ...]) -> Tensor:
    """On a GPU a tap is one gather over the batch, at the place of the pixel plus that of the tap."""
    number, channels, height, width = x.shape
    padded = functional.pad(x.to(torch.float32), margins, mode="replicate")
    stride = padded.shape[-1]
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    pixel = (rows[:, None] * stride + columns).flatten()
    shift = (offsets[..., 0] * stride + offsets[..., 1]).to(x.device)
    source = padded.flatten(2)
    total = padded.new_full((number, channels, height * width), _HALF_STEP)
    for tap, weight in enumerate(weights):
        place = (pixel + shift[:, tap, None])[:, None].expand(-1, channels, -1)
        total.add_(source.gather(2, place), alpha=weight)
    return total.view(x.shape).to(torch.int32).to(torch.uint8)
