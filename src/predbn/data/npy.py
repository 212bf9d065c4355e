"""A user's own images as a pair of .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError

from .images import Images

__all__ = ["from_npy", "load_array"]


def from_npy(folder: str | Path) -> Images:
    """The images of a folder with `images.npy` and `labels.npy`.

    `images.npy` is uint8 [N, H, W, 3] or [N, 3, H, W], `labels.npy` holds N whole numbers from 0. The images
    stay on the disk until they are read. `classes.txt`, one name a line, may give the classes their names.
    """
    root = Path(folder)
    images, labels = load_array(root / "images.npy"), load_array(root / "labels.npy")
    if images.dtype != np.uint8 or images.ndim != 4 or 3 not in (images.shape[1], images.shape[3]):
        found = f"{images.dtype} {images.shape}"
        raise DataError(f"{root / 'images.npy'} is {found}, but must be uint8 (N, height, width, 3) or (N, 3, …).")
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        found = f"{labels.dtype} {labels.shape}"
        raise DataError(f"{root / 'labels.npy'} is {found}, but must hold {len(images)} whole numbers, one an image.")
    pixels = torch.from_numpy(images)
    if images.shape[3] == 3:
        pixels = pixels.permute(0, 3, 1, 2)
    numbers = torch.from_numpy(labels.astype(np.int64))
    index = torch.arange(len(numbers))
    return Images(pixels, numbers, index, _classes(root / "classes.txt", numbers), root.resolve().name)


def load_array(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file, left on the disk until it is read; what is written to it does not get there."""
    try:
        loaded = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        beside = sorted(p.name for p in path.parent.glob("*.npy"))
        raise DataError(f"{path} is missing; {path.parent} has {', '.join(beside) or 'no .npy files'}.") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read as a .npy file ({error}); it may be cut off: get it again.") from None
    if not isinstance(loaded, np.ndarray):
        raise DataError(f"{path} holds several arrays, but a .npy file with one is needed.")
    return loaded


def _classes(path: Path, labels: Tensor) -> tuple[str, ...]:
    """The names in the file, or the numbers themselves."""
    if path.is_file():
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return tuple(str(label) for label in range(int(labels.max()) + 1 if len(labels) else 0))
