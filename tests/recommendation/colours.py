"""Pictures before and after a shift, and a network that knows the first: small enough for tests.

A class is a colour. The new camera is darker and has less contrast: the stored statistics are wrong, and those of
a batch are right.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from predbn.models import Classifier, ModelInfo, Preprocessing

CLASSES = ("blue", "green", "red")
SIDE = 8


def pictures(count: int, *, shifted: bool = False, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [N, 8, 8, 3] and labels; the classes come mixed."""
    random = np.random.default_rng([seed, shifted])
    labels = random.integers(0, 3, count)
    pixels = random.normal(100, 40, (count, SIDE, SIDE, 3))
    pixels[np.arange(count), :, :, 2 - labels] += 25  # blue is the last channel
    if shifted:
        pixels = pixels * np.array([0.3, 0.5, 0.9]) + np.array([90, 40, 0])
    return pixels.clip(0, 255).astype(np.uint8), labels


def write_folder(root: Path, images: np.ndarray, labels: np.ndarray, *, flat: bool = False) -> Path:
    """`<class>/<number>.png`, or with `flat` all in one folder; the numbers are the order of the stream."""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = root if flat else root / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"picture{number}.png")
    return root


def network() -> nn.Module:
    """Normalises the channels, and compares their means: right on pictures like those of `pictures`."""
    images, _ = pictures(500, seed=1)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float().div(255)
    norm = nn.BatchNorm2d(3, affine=False).eval()
    norm.running_mean.copy_(x.mean((0, 2, 3)))
    norm.running_var.copy_(x.var((0, 2, 3)))
    head = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        head.weight.copy_(20 * torch.eye(3).flip(0))
    return nn.Sequential(norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).eval()


def preprocessing() -> Preprocessing:
    """Pixels from 0 to 1."""
    return Preprocessing((SIDE, SIDE), mean=(0.0, 0.0, 0.0), std=(255.0, 255.0, 255.0))


def classifier() -> Classifier:
    """For the reference `tests.recommendation.colours:classifier`."""
    return Classifier(network(), ModelInfo("colours", 3, preprocessing()))
