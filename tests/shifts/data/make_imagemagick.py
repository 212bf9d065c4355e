"""Makes imagemagick.npz: motion blur and snow as the real ImageMagick computes them.

Run once, with ImageMagick 6.9.11-60 Q16 behind Wand 0.7 and with scipy; the tests need neither of the first
two. The benchmark's generator goes the same way: PNG in, MagickMotionBlurImage, PNG out.

    pip install wand scipy opencv-python-headless && python make_imagemagick.py
"""

import math
from pathlib import Path

import cv2
import numpy as np
from scipy import ndimage
from wand.image import Image

MOTION = {
    "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
}
SNOW = {
    "cifar": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "imagenet": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
}


def imagemagick(picture: np.ndarray, radius: float, sigma: float, angle: float) -> np.ndarray:
    """Motion blur of a uint8 picture in OpenCV's channel order."""
    with Image(blob=cv2.imencode(".png", picture)[1].tobytes()) as image:
        image.motion_blur(radius=radius, sigma=sigma, angle=angle)
        return cv2.imdecode(np.frombuffer(image.make_blob("png"), np.uint8), cv2.IMREAD_UNCHANGED)


def clipped_zoom(layer: np.ndarray, zoom: float) -> np.ndarray:
    """The middle of a square layer, stretched to the size of the whole."""
    size = len(layer)
    middle = math.ceil(size / zoom)
    first = (size - middle) // 2
    large = ndimage.zoom(layer[first : first + middle, first : first + middle], zoom, order=1)
    trim = (len(large) - size) // 2
    return large[trim : trim + size, trim : trim + size]


def snowed(picture: np.ndarray, noise: np.ndarray, angle: float, constants: tuple[float, ...]) -> np.ndarray:
    """Snow from given standard normal noise, uint8."""
    mean, deviation, zoom, threshold, radius, sigma, kept = constants
    layer = clipped_zoom(noise.astype(np.float64) * deviation + mean, zoom)
    layer[layer < threshold] = 0
    flakes = imagemagick((np.clip(layer, 0, 1) * 255).astype(np.uint8), radius, sigma, angle) / 255.0
    x = picture.astype(np.float32) / 255
    pale = np.maximum(x, cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None] * 1.5 + 0.5)
    x = kept * x + (1 - kept) * pale
    return (np.clip(x + flakes[..., None] + np.rot90(flakes, 2)[..., None], 0, 1) * 255).astype(np.uint8)


def main() -> None:
    rng = np.random.default_rng(0)
    made: dict[str, np.ndarray] = {}
    for constants, size in (("cifar", 32), ("imagenet", 72)):
        soft = ndimage.gaussian_filter(rng.normal(size=(size, size, 3)), (2, 2, 0))
        rough = soft / soft.std() * 55 + 120 + rng.normal(size=soft.shape) * 15
        picture = np.clip(rough, 0, 255).astype(np.uint8)
        made[f"{constants}_picture"] = picture
        for severity in range(1, 6):
            angle = rng.uniform(-45, 45)
            blurred = imagemagick(picture[..., ::-1], *MOTION[constants][severity - 1], angle)[..., ::-1]
            made[f"{constants}_motion_{severity}"] = blurred
            made[f"{constants}_motion_{severity}_angle"] = np.float64(angle)
            noise = rng.normal(size=(size, size)).astype(np.float32).round(2)
            angle = rng.uniform(-135, -45)
            made[f"{constants}_snow_{severity}_noise"] = noise.astype(np.float16)
            made[f"{constants}_snow_{severity}_angle"] = np.float64(angle)
            given = noise.astype(np.float16).astype(np.float32)
            made[f"{constants}_snow_{severity}"] = snowed(picture, given, angle, SNOW[constants][severity - 1])
    np.savez_compressed(Path(__file__).with_name("imagemagick.npz"), **made)


if __name__ == "__main__":
    main()
