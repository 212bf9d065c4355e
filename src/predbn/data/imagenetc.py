"""ImageNet-C as published: a folder of pictures for each corruption and severity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from .errors import DataError

__all__ = ["ImageNetC"]

_PICTURES = {".jpeg", ".jpg", ".png"}


class ImageNetC:
    """A folder `<corruption>/<severity>/<class>/<picture>`.

    `names` lists the corruptions and `classes` the class folders in sorted order, which is that of the labels.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{self.root} is not a directory with the corruptions of ImageNet-C.")
        self.names = sorted(p.name for p in self.root.iterdir() if (p / "1").is_dir())
        if not self.names:
            raise DataError(
                f"{self.root} has no <corruption>/<severity> folders; point it at the folder that holds them."
            )
        self.classes = sorted(p.name for p in (self.root / self.names[0] / "1").iterdir() if p.is_dir())

    def split(self, name: str, severity: int) -> list[tuple[Path, int]]:
        """The pictures of one corruption at one severity with their labels, sorted by class and name."""
        folder = self.root / name / str(severity)
        if not folder.is_dir():
            raise DataError(f"{folder} is missing; {self.root} has {', '.join(self.names)}, each at severities 1 to 5.")
        number = {wnid: label for label, wnid in enumerate(self.classes)}
        unknown = sorted(p.name for p in folder.iterdir() if p.is_dir() and p.name not in number)
        if unknown:
            first = self.root / self.names[0] / "1"
            raise DataError(f"{folder} has the class {unknown[0]}, which {first} has not: some pictures are missing.")
        found = sorted(p for p in folder.glob("*/*") if p.suffix.lower() in _PICTURES)
        if not found:
            raise DataError(f"{folder} has no pictures in class folders.")
        return [(path, number[path.parent.name]) for path in found]

    def batches(self, name: str, severity: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of at most `size` pictures, uint8 [n, 3, H, W], and their labels."""
        pictures = self.split(name, severity)
        for start in range(0, len(pictures), size):
            piece = pictures[start : start + size]
            images = np.stack([_read(path) for path, _ in piece])
            labels = torch.tensor([label for _, label in piece])
            yield torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels


def _read(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise DataError(f"{path} cannot be read as a picture ({error}): replace it.") from None
