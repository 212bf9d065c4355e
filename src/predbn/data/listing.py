"""Which pictures a folder `<class>/<picture>` holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from predbn.common import DataError

__all__ = ["ENDINGS", "Listing", "class_folders", "is_picture", "list_pictures"]

ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True, eq=False)
class Listing:
    """The pictures of a folder, in the order of its classes and by name within each: `names[i]` is `<class>/<picture>`.

    `labels`, int64 [N], are numbers into `classes`; a class without a picture counts too.
    """

    root: Path
    classes: tuple[str, ...]
    names: list[str]
    labels: Tensor

    def __len__(self) -> int:
        """How many pictures there are."""
        return len(self.names)

    def path(self, position: int) -> str:
        """Where one of them is."""
        return os.path.join(self.root, self.names[position])

    def fingerprint(self) -> str:
        """SHA-256 of all names, sizes and times of change: another one where a picture came, went or was changed."""
        digest = hashlib.sha256()
        for position, name in enumerate(self.names):
            found = os.stat(self.path(position))
            digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()


def class_folders(root: Path) -> list[str]:
    """The names of the folders right below, sorted; hidden ones are none."""
    if not root.is_dir():
        raise DataError(f"{root} is not a directory with one folder of pictures a class.")
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())


def list_pictures(root: Path, classes: Sequence[str] | None = None) -> Listing:
    """The pictures of these class folders, in that order, or of all folders in sorted order."""
    chosen = tuple(class_folders(root) if classes is None else classes)
    names: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(chosen):
        with os.scandir(root / name) as entries:
            found = sorted(entry.name for entry in entries if is_picture(entry.name) and entry.is_file())
        names.extend(f"{name}/{picture}" for picture in found)
        labels.extend([label] * len(found))
    if not names:
        raise DataError(f"{root} has no pictures in class folders, as <class>/<picture>.png.")
    return Listing(root, chosen, names, torch.tensor(labels))


def is_picture(name: str) -> bool:
    """Whether a file's name ends as a picture's does; what the system hides beside it (`._…`) is none."""
    return name.lower().endswith(ENDINGS) and not name.startswith(".")
