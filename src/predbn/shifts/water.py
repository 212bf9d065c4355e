"""The relief of water drops: how much light each pixel of a liquid layer throws back.

The chain (edges, distance to them, equalised histogram, a slanted filter) is OpenCV's own code, whose
details define the result, so it runs on the host, an image a call, in threads: OpenCV lets go of the
interpreter while it works.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import map_threads, threads_for

__all__ = ["droplets"]

_SLANT = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float32)


def droplets(layer: Tensor) -> Tensor:
    """[N, H, W] weights in [0, 1] of a liquid layer [N, H, W], each image's greatest being 1.

    A layer above 1 wraps around in eight bits, as it does in the reference. Where that divides nought by
    nought, because a layer has no liquid at all, the weights are 0.
    """
    depth = layer.mul(255).to(torch.int32).to(torch.uint8).cpu()
    relief = torch.empty(depth.shape, dtype=torch.uint8)
    given, made = depth.numpy(), relief.numpy()
    threads = threads_for(*given.shape[1:])
    step = max(1, len(given) // (4 * min(threads, torch.get_num_threads())))

    def work(start: int) -> None:
        for one, result in zip(given[start : start + step], made[start : start + step], strict=True):
            _relief(one, result)

    map_threads(work, range(0, len(given), step), most=threads)
    weight = depth.to(layer.device, torch.float32).mul_(relief.to(layer.device))
    return weight.div_(weight.flatten(1).amax(1).clamp_(min=1)[:, None, None])


def _relief(depth: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> None:
    """Write the lit surface of one layer into `out`."""
    distance = cv2.distanceTransform(255 - cv2.Canny(depth, 50, 150), cv2.DIST_L2, 5)
    surface = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    lit = cv2.filter2D(cv2.equalizeHist(surface), cv2.CV_8U, _SLANT)
    cv2.blur(lit, (3, 3), dst=out)
