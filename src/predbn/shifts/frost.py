"""The frost pictures, and a crop of one of them for each image.

The five photographs are those of the benchmark's authors, kept in the folder `frost` beside this file. They
are decoded once a process, and resized and moved to a device once for each size of image.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws

__all__ = ["NAMES", "frost_crops", "frost_pictures"]

NAMES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


@lru_cache(maxsize=1)
def _decoded() -> tuple[npt.NDArray[np.uint8], ...]:
    """The pictures as they are, in OpenCV's layout."""
    pictures = []
    for name in NAMES:
        picture = cv2.imread(str(Path(__file__).parent / "frost" / name))
        assert picture is not None, f"{name} is missing from the package"
        pictures.append(picture.astype(np.uint8, copy=False))
    return tuple(pictures)


@lru_cache(maxsize=8)
def frost_pictures(scale: float, height: int, width: int, device: torch.device) -> tuple[Tensor, ...]:
    """The pictures [3, rows, columns], uint8 RGB, resized by `scale`.

    One that would not cover an image of this size with a pixel to spare is enlarged until it does.
    """
    pictures = []
    for picture in _decoded():
        resized = picture if scale == 1 else cv2.resize(picture, (0, 0), fx=scale, fy=scale)
        rows, columns = resized.shape[:2]
        short = max((height + 1) / rows, (width + 1) / columns)
        if short > 1:
            resized = cv2.resize(resized, (math.ceil(columns * short), math.ceil(rows * short)))
        pictures.append(torch.from_numpy(resized[..., ::-1].transpose(2, 0, 1).copy()).to(device))
    return tuple(pictures)


def frost_crops(draws: Draws, scale: float, height: int, width: int) -> Tensor:
    """[N, 3, height, width] uint8: for each image a place in one of the pictures, all equally likely."""
    which = draws.integers(0, len(NAMES)).cpu()
    place = draws.uniform(2).cpu().double()
    crops = torch.empty(len(draws), 3, height, width, dtype=torch.uint8, device=draws.device)
    for number, picture in enumerate(frost_pictures(scale, height, width, draws.device)):
        images = (which == number).nonzero().squeeze(1)
        room = torch.tensor([picture.shape[1] - height, picture.shape[2] - width])
        top, left = (place[images] * room).long().to(draws.device).unbind(1)
        windows = picture.unfold(1, height, 1).unfold(2, width, 1).permute(1, 2, 0, 3, 4)
        crops[images.to(draws.device)] = windows[top, left]
    return crops
