"""ImageMagick's motion blur, for a batch of images that each have their own angle.

A pixel becomes a weighted mean of itself and the pixels that follow on a line of angle θ:

    y(p) = Σ_i w_i·x(p + o_i),   w_i ∝ exp(−i²/2σ²),   i = 0 … 2·radius,
    o_i = (⌈i·sin θ − ½⌉, ⌈i·cos θ − ½⌉)   in rows and columns

so the Gaussian is one-sided and samples are whole pixels; outside of the image the edge is repeated. ImageMagick
rounds the mean to 16 bits, 257 steps per grey level, and truncates it to 8 bits when it writes a PNG.
"""

from __future__ import annotations

import math

import cv2
import torch
from torch import Tensor
from torch.nn import functional

from predbn.common import Draws

from .registry import register

_NEGLIGIBLE = 1e-4
_HALF_STEP = 0.5 / 257


@register(
    "motion_blur",
    family="blur",
    cifar=((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
    imagenet=((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
    works_on="uint8",
    chunk=1 << 20,
)
def motion_blur(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """ImageMagick's motion blur of radius c₀ and σ = c₁, with an angle uniform in [−45°, 45°)."""
    return motion_blur_at_angle(x, *c, angle=draws.uniform().mul_(90).sub_(45))


def _weights(radius: float, sigma: float) -> list[float]:
    """The weights of the taps, without the tail, whose total weight is at most 1e-4 (a fortieth of a grey level)."""
    raw = [math.exp(-(i * i) / (2 * sigma * sigma)) for i in range(2 * math.ceil(radius) + 1)]
    enough = (1 - _NEGLIGIBLE) * sum(raw)
    count = next(n for n in range(1, len(raw) + 1) if sum(raw[:n]) >= enough)
    return [value / sum(raw[:count]) for value in raw[:count]]


def _offsets(angle: Tensor, count: int) -> Tensor:
    """[N, count, 2] in whole pixels, computed on the CPU in float64 so that they are the same for every device."""
    radians = angle.cpu().double().mul(math.pi / 180)
    direction = torch.stack([radians.sin(), radians.cos()], dim=-1)
    steps = torch.arange(count, dtype=torch.float64)
    return (steps[:, None] * direction[:, None, :] - 0.5).ceil().long()


def motion_blur_at_angle(x: Tensor, radius: float, sigma: float, angle: Tensor) -> Tensor:
    """Motion blur of a uint8 batch [N, C, H, W], with angle[n] degrees for image n."""
    weights = _weights(radius, sigma)
    offsets = _offsets(angle, len(weights))
    above, left = (-int(low) for low in offsets.flatten(0, 1).amin(0))
    below, right = (int(high) for high in offsets.flatten(0, 1).amax(0))
    offsets += torch.tensor([above, left])
    margins = (left, right, above, below)
    blur = _blur_by_slices if x.device.type == "cpu" else _blur_by_gather
    return blur(x, weights, offsets, margins)


def _blur_by_slices(x: Tensor, weights: list[float], offsets: Tensor, margins: tuple[int, ...]) -> Tensor:
    """For a CPU: a tap is a slice of the padded image, channels last, which OpenCV scales and adds in one step."""
    number, channels, height, width = x.shape
    padded = functional.pad(x.to(torch.float32), margins, mode="replicate")
    sources = padded.permute(0, 2, 3, 1).flatten(2).contiguous().numpy()
    total = torch.full((number, height, width * channels), _HALF_STEP)
    positions = (offsets * torch.tensor([1, channels])).tolist()
    for source, target, taps in zip(sources, total.numpy(), positions, strict=True):
        for (row, column), weight in zip(taps, weights, strict=True):
            tap = source[row : row + height, column : column + width * channels]
            cv2.scaleAdd(tap, weight, target, target)
    blurred = total.to(torch.int32).to(torch.uint8).view(number, height, width, channels)
    return blurred.permute(0, 3, 1, 2).contiguous()


def _blur_by_gather(x: Tensor, weights: list[float], offsets: Tensor, margins: tuple[int, ...]) -> Tensor:
    """For a GPU: a tap is one gather over the whole batch, at the position of the pixel plus that of the tap."""
    number, channels, height, width = x.shape
    padded = functional.pad(x.to(torch.float32), margins, mode="replicate")
    stride = padded.shape[-1]
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    pixel = (rows[:, None] * stride + columns).flatten()
    shift = (offsets[..., 0] * stride + offsets[..., 1]).to(x.device)
    source = padded.flatten(2)
    total = padded.new_full((number, channels, height * width), _HALF_STEP)
    for tap, weight in enumerate(weights):
        position = (pixel + shift[:, tap, None])[:, None].expand(-1, channels, -1)
        total.add_(source.gather(2, position), alpha=weight)
    return total.view(x.shape).to(torch.int32).to(torch.uint8)
