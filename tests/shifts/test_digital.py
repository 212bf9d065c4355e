"""The digital corruptions against simple references, to one grey level."""

import colorsys
import io

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from predbn.shifts import corrupt, get_corruption

Images = npt.NDArray[np.uint8]
SETS = ["cifar", "imagenet"]
SEVERITIES = [1, 2, 3, 4, 5]

_to_hsv = np.vectorize(colorsys.rgb_to_hsv)
_to_rgb = np.vectorize(colorsys.hsv_to_rgb)


def to_uint8(x: npt.NDArray[np.float64]) -> Images:
    return (np.clip(x, 0, 1) * 255).astype(np.uint8)


def brightness(image: Images, c: float) -> Images:
    h, s, v = _to_hsv(*np.moveaxis(image / 255.0, 2, 0))
    return to_uint8(np.stack(_to_rgb(h, s, np.clip(v + c, 0, 1)), axis=2))


def saturate(image: Images, c: tuple[float, float]) -> Images:
    h, s, v = _to_hsv(*np.moveaxis(image / 255.0, 2, 0))
    return to_uint8(np.stack(_to_rgb(h, np.clip(s * c[0] + c[1], 0, 1), v), axis=2))


def contrast(image: Images, c: float) -> Images:
    x = image / 255.0
    mean = x.mean(axis=(0, 1), keepdims=True)
    return to_uint8((x - mean) * c + mean)


def pixelate(image: Images, c: float) -> Images:
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((int(width * c), int(height * c)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: Images, c: int) -> Images:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=c)
    return np.asarray(Image.open(file))


REFERENCES = {
    "brightness": brightness,
    "saturate": saturate,
    "contrast": contrast,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
}


def difficult_images(cifar: Images) -> Images:
    """Real images, every grey, black, white and pure colours."""
    greys = np.arange(1024).reshape(32, 32, 1).astype(np.uint8).repeat(3, axis=2)
    pure = np.zeros((32, 32, 3), np.uint8)
    for channel in range(3):
        pure[channel::4, :, channel] = np.arange(32) * 8 + 7
    return np.concatenate([cifar[:4], greys[None], pure[None], np.full((1, 32, 32, 3), 255, np.uint8)])


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("name", REFERENCES)
def test_equals_the_reference(name: str, constants: str, severity: int, cifar: Images) -> None:
    images = difficult_images(cifar)
    done = corrupt(images, name, severity, seed=0, index=np.arange(len(images)), constants=constants)
    c = get_corruption(name).constant(severity, constants)
    expected = np.stack([REFERENCES[name](image, c) for image in images])
    difference = np.abs(done.astype(int) - expected)
    assert difference.max() <= 1
    if name in ("pixelate", "jpeg_compression"):
        assert difference.max() == 0


@pytest.mark.parametrize("shape", [(33, 47), (100, 64), (224, 224)])
@pytest.mark.parametrize("name", ["contrast", "pixelate", "jpeg_compression"])
def test_equals_the_reference_on_odd_shapes(name: str, shape: tuple[int, int]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, *shape, 3), dtype=np.uint8)
    for constants in SETS:
        done = corrupt(images, name, 3, seed=0, index=[0, 1], constants=constants)
        expected = np.stack([REFERENCES[name](image, get_corruption(name).constant(3, constants)) for image in images])
        assert np.abs(done.astype(int) - expected).max() <= 1
