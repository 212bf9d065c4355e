"""The frost pictures: all five drawn, anywhere, and large enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from scipy import stats

from predbn.common.random import Draws
from predbn.shifts import corrupt
from predbn.shifts import frost as pictures
from predbn.shifts.registry import get


@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_frost_is_a_crop_of_one_of_five_pictures(constants: Any) -> None:
    """On black, every image is found again in a picture; pictures 2 and 3 hold the same pixels."""
    count, side = 16, 32
    ice = get("frost").constant(3, constants)[1]
    black = np.zeros((count, side, side, 3), np.uint8)
    made = corrupt(black, "frost", 3, seed=0, index=range(count), constants=constants)
    folder = Path(pictures.__file__).parent / "frost"
    faint = []
    for name in ("frost1.png", "frost2.png", "frost4.jpg", "frost5.jpg"):
        picture = cv2.imread(str(folder / name))
        assert picture is not None
        if constants == "cifar":
            picture = cv2.resize(picture, (0, 0), fx=0.2, fy=0.2)
        faint.append((ice * picture[..., ::-1].astype(np.float64) + 1e-4).astype(np.uint8))
    found = set()
    for image in made:
        misses = [cv2.matchTemplate(one, image, cv2.TM_SQDIFF)[:-1, :-1].min() / side**2 for one in faint]
        assert min(misses) < 0.1
        found.add(int(np.argmin(misses)))
    assert found == {0, 1, 2, 3}


def test_frost_covers_images_larger_than_its_pictures() -> None:
    made = corrupt(np.zeros((4, 700, 700, 3), np.uint8), "frost", 2, seed=0, index=range(4))
    assert made.shape == (4, 700, 700, 3)
    assert corrupt(np.zeros((4, 64, 64, 3), np.uint8), "frost", 2, seed=0, index=range(4)).shape == (
        4,
        64,
        64,
        3,
    )


def test_frost_places_are_uniform() -> None:
    draws = Draws(0, "frost", 1, torch.arange(4000))
    which = draws.integers(0, 5)
    assert stats.chisquare(np.bincount(which.numpy(), minlength=5)).pvalue > 1e-4
    assert [tuple(p.shape) for p in pictures.frost_pictures(1.0, 32, 32, torch.device("cpu"))] == [
        (3, 600, 900),
        (3, 315, 560),
        (3, 315, 560),
        (3, 350, 527),
        (3, 495, 660),
    ]
