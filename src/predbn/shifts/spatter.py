"""Spatter: drops of water or mud on the lens."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws, map_threads

from .pixels import opencv_threads
from .registry import register
from .separable import gaussian_filter

_TURQUOISE = (175 / 255, 238 / 255, 238 / 255)
_BROWN = (63 / 255, 42 / 255, 20 / 255)
_SLANT = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float32)


@register(
    "spatter",
    family="weather",
    cifar=(
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1.0, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    imagenet=(
        (0.65, 0.3, 4.0, 0.69, 0.6, 0),
        (0.65, 0.3, 3.0, 0.68, 0.6, 0),
        (0.65, 0.3, 2.0, 0.68, 0.5, 0),
        (0.65, 0.3, 1.0, 0.65, 1.5, 1),
        (0.67, 0.4, 1.0, 0.65, 1.5, 1),
    ),
    min_side=3,
    chunk=1 << 20,
    mixes_channels=True,
)
def spatter(x: Tensor, c: tuple[float, float, float, float, float, int], draws: Draws) -> Tensor:
    """Drops where smoothed noise N(m, s) exceeds a threshold: turquoise water added to x, or brown mud on top of x."""
    mean, deviation, sigma, threshold, strength, is_mud = c
    noise = draws.normal(*x.shape[-2:]).mul_(deviation).add_(mean)
    layer = torch.threshold_(gaussian_filter(noise, sigma), threshold, 0.0)
    if is_mud:
        cover = torch.threshold_(gaussian_filter((layer > threshold).to(torch.float32), strength), 0.8, 0.0)[:, None]
        return torch.lerp(x, _colour(_BROWN, x), cover)
    return torch.addcmul(x, droplet_weights(layer)[:, None], _colour(_TURQUOISE, x), value=strength)


def _colour(rgb: tuple[float, float, float], x: Tensor) -> Tensor:
    return torch.tensor(rgb, device=x.device).view(3, 1, 1)


def droplet_weights(layer: Tensor) -> Tensor:
    """How much light each pixel of a liquid layer [N, H, W] reflects: [N, H, W] in [0, 1], with maximum 1 per image.

    The steps (edges, distance to them, equalised histogram, a slanted filter) are OpenCV's own code, and its details
    define the result. So this runs on the CPU, image by image, in threads: OpenCV releases the interpreter lock.

    A layer above 1 wraps around in 8 bits, as in the reference. If a layer has no liquid at all, where the reference
    divides 0 by 0, the weights are 0.
    """
    depth = layer.mul(255).to(torch.int32).to(torch.uint8).cpu()
    relief = torch.empty(depth.shape, dtype=torch.uint8)
    depths, reliefs = depth.numpy(), relief.numpy()
    threads = opencv_threads(*depths.shape[1:])
    step = max(1, len(depths) // (4 * min(threads, torch.get_num_threads())))

    def process_chunk(start: int) -> None:
        for layer_depth, out in zip(depths[start : start + step], reliefs[start : start + step], strict=True):
            _write_relief(layer_depth, out)

    map_threads(process_chunk, range(0, len(depths), step), max_threads=threads)
    weight = depth.to(layer.device, torch.float32).mul_(relief.to(layer.device))
    return weight.div_(weight.flatten(1).amax(1).clamp_(min=1)[:, None, None])


def _write_relief(depth: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
    """Write the lit surface of one layer into `out`."""
    distance = cv2.distanceTransform(255 - cv2.Canny(depth, 50, 150), cv2.DIST_L2, 5)
    surface = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    lit = cv2.filter2D(cv2.equalizeHist(surface), cv2.CV_8U, _SLANT)
    cv2.blur(lit, (3, 3), dst=out)
