"""Images in .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError

from .images import Images


def from_npy(folder: str | Path) -> Images:
    """The images of a folder with `images.npy` and `labels.npy`.

    `images.npy` is uint8 [N, H, W, 3] or [N, 3, H, W], `labels.npy` holds N whole numbers from 0. The images stay on
    the disk until they are used. The optional `classes.txt` holds the names of the classes, one per line.
    """
    root = Path(folder)
    images, labels = load_images(root / "images.npy"), load_array(root / "labels.npy")
    if labels.shape != images.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        actual = f"{labels.dtype} {labels.shape}"
        raise DataError(f"{root / 'labels.npy'} is {actual}, but must be {len(images)} whole numbers, one per image.")
    label_tensor = torch.from_numpy(labels.astype(np.int64))
    classes = _read_classes(root / "classes.txt", label_tensor)
    return Images(images, label_tensor, torch.arange(len(images)), classes, root.resolve().name)


def load_images(path: Path) -> Tensor:
    """The images of a .npy file as uint8 [N, 3, H, W], a view of the file."""
    array = load_array(path)
    if array.dtype != np.uint8 or array.ndim != 4 or 3 not in (array.shape[1], array.shape[3]):
        actual = f"{array.dtype} {array.shape}"
        raise DataError(f"{path} is {actual}, but must be uint8 (N, height, width, 3) or (N, 3, height, width).")
    images = torch.from_numpy(array)
    return images.permute(0, 3, 1, 2) if array.shape[3] == 3 else images


def load_array(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file, mapped into memory; changes to it are not written to the file."""
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        neighbours = sorted(neighbour.name for neighbour in path.parent.glob("*.npy"))
        raise DataError(f"{path} is missing; {path.parent} has {', '.join(neighbours) or 'no .npy files'}.") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a .npy file ({error}): it may be incomplete, get it again."
        ) from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} holds several arrays, but must be a .npy file with one.")
    return array


def _read_classes(path: Path, labels: Tensor) -> tuple[str, ...]:
    """The names in the file if it exists, otherwise the numbers of the classes."""
    if path.is_file():
        return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return tuple(str(label) for label in range(int(labels.max()) + 1 if len(labels) else 0))
