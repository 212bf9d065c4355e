"""The elastic transform against OpenCV and scipy with the same random numbers."""

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import ndimage

from predbn.common import Draws
from predbn.shifts import corrupt, get_corruption


def reference(image: npt.NDArray[np.uint8], c: tuple[float, float, float], draws: Draws) -> npt.NDArray[np.uint8]:
    """Affine map by OpenCV, fields by scipy, exactly in the benchmark's sequence."""
    amplitude, sigma, reach = c
    height, width = image.shape[:2]
    centre, third = np.float32([height // 2, width // 2]), min(height, width) // 3
    corners = np.float32([centre + third, [centre[0] + third, centre[1] - third], centre - third])
    moved = corners + ((draws.uniform(3, 2)[0].numpy() * 2 - 1) * reach).astype(np.float32)
    matrix = cv2.getAffineTransform(corners, moved)
    x = cv2.warpAffine(image.astype(np.float32) / 255, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    if amplitude:
        noise = draws.uniform(2, height, width)[0].numpy().astype(np.float64) * 2 - 1
        dx, dy = (ndimage.gaussian_filter(n, sigma, mode="reflect", truncate=3) * amplitude for n in noise)
        rows, columns = np.mgrid[0:height, 0:width]
        places = [rows + dy, columns + dx]
        x = np.stack([ndimage.map_coordinates(x[..., k], places, order=1, mode="reflect") for k in range(3)], 2)
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("size", [32, 224])
def test_equals_the_reference(size: int, severity: int, cifar, large) -> None:  # type: ignore[no-untyped-def]
    images = cifar[:4] if size == 32 else large[:2]
    c = get_corruption("elastic_transform").constant(severity, "cifar" if size == 32 else "imagenet")
    done = corrupt(images, "elastic_transform", severity, seed=5, index=np.arange(len(images)))
    for i, image in enumerate(images):
        draws = Draws(5, "elastic_transform", severity, torch.tensor([i]))
        difference = np.abs(done[i].astype(int) - reference(image, c, draws))
        # OpenCV may round the position that it reads to a thirty-second of a pixel.
        assert difference.mean() < 0.7
        assert np.quantile(difference, 0.99) <= 5
