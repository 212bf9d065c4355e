"""Real images for the tests of the shifts."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

MOSAIC = Path(__file__).parent / "data" / "cifar10-test-2000.webp"


@pytest.fixture(scope="session")
def cifar() -> npt.NDArray[np.uint8]:
    """The first 2,000 CIFAR-10 test images, lossless; the reference figures were computed from them."""
    mosaic = np.asarray(Image.open(MOSAIC).convert("RGB"))
    return np.ascontiguousarray(mosaic.reshape(40, 32, 50, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3))


@pytest.fixture(scope="session")
def large(cifar: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Four images of 224 × 224."""
    return np.stack([np.asarray(Image.fromarray(i).resize((224, 224), Image.Resampling.BICUBIC)) for i in cifar[:4]])
