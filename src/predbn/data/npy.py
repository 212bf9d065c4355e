"""Images in .npy files."""

from __future__ import annotations

import time
import tokenize
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError, open_checked

from .images import Images
from .reading import check_regular, in_one_line, readable, why_unreadable

MAX_UNNAMED_CLASSES = 100_000
"""A damaged label of 2³¹ must not become two billion classes. ImageNet has 21,841."""

NPY_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    SyntaxError,
    OverflowError,
    MemoryError,
    RecursionError,
    SystemError,
    tokenize.TokenError,
)
"""What numpy raises if a file is not an array, or a damaged one; some of it comes from Python's parser."""

_REMEDY = "it may be incomplete; run the command that wrote it again, which replaces damaged files"


def from_npy(folder: str | Path) -> Images:
    """The images of a folder with `images.npy` and `labels.npy`.

    `images.npy` is uint8 [N, H, W, C], [N, C, H, W] or [N, H, W], `labels.npy` holds N integers from 0. The
    images stay on the disk until they are used. The optional `classes.txt` names the classes, one per line.
    """
    root = Path(folder)
    images = load_images(root / "images.npy")
    labels = check_labels(root / "labels.npy", load_array(root / "labels.npy"), len(images))
    classes = _read_classes(root / "classes.txt") or class_numbers(root / "labels.npy", labels)
    if len(labels) and int(labels.max()) >= len(classes):
        span = f"labels go from {labels.min()} to {labels.max()}"
        raise DataError(f"{root / 'labels.npy'}: {span}, but there are {len(classes)} classes in classes.txt.")
    return Images(images, labels, torch.arange(len(images)), classes, root.resolve().name)


def load_images(path: Path) -> Tensor:
    """The images of a .npy file as uint8 [N, C, H, W], a view of the file.

    Of the second and the last dimension the smaller one is that of the channels; without either, images are grey.
    """
    array = load_array(path)
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        actual = f"{array.dtype} {array.shape}"
        raise DataError(
            f"{path} is {actual}, but must be uint8 (N, height, width, channels), (N, channels, height, width) or "
            "(N, height, width)."
        )
    images = torch.from_numpy(array)
    if images.ndim == 3:
        return images[:, None]
    return images.permute(0, 3, 1, 2) if array.shape[3] <= array.shape[1] else images


def load_array(path: Path) -> npt.NDArray[Any]:
    """The array of a .npy file, mapped into memory; changes to it are not written to the file.

    If predbn wrote the file, its checksum is compared, once per process as long as the file is not changed.
    """
    try:
        check_regular(path)
        _check_content(path)
        array = np.lib.format.open_memmap(path, mode="c")
    except FileNotFoundError:
        neighbours = sorted(neighbour.name for neighbour in path.parent.glob("*.npy"))
        raise DataError(f"{path} is missing; {path.parent} has {', '.join(neighbours) or 'no .npy files'}.") from None
    except DataError:
        raise
    except NPY_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            reason, remedy = why_unreadable(error)
            raise DataError(f"{path} cannot be read ({reason}): {remedy}.") from None
        raise DataError(
            f"{path} cannot be read as a .npy file ({in_one_line(error)}): it may be incomplete, get it again."
        ) from None
    return array


def check_labels(origin: Path | str, labels: npt.NDArray[Any], count: int) -> Tensor:
    """Labels as int64, after checking that they are `count` integers from 0; `origin` is where they are from."""
    if labels.shape != (count,) or not np.issubdtype(labels.dtype, np.integer):
        actual = f"{labels.dtype} {labels.shape}"
        raise DataError(f"{origin} is {actual}, but must be {count} integers, one per image.")
    if count and (labels.min() < 0 or labels.max() > np.iinfo(np.int64).max):
        raise DataError(f"{origin}: labels go from {labels.min()} to {labels.max()}, but must not be negative.")
    return torch.from_numpy(labels.astype(np.int64))


def class_numbers(origin: Path | str, labels: Tensor) -> tuple[str, ...]:
    """Names for classes without names: their numbers, from 0 to the largest label."""
    largest = int(labels.max()) if len(labels) else -1
    if largest >= MAX_UNNAMED_CLASSES:
        raise DataError(
            f"{origin} has the label {largest}, but there are at most {MAX_UNNAMED_CLASSES:,} classes without names: "
            "correct it, or name all classes in classes.txt."
        )
    return tuple(map(str, range(largest + 1)))


_checked: set[tuple[str, int, int]] = set()
"""Path, size and modification time of the files whose checksum this process has compared."""

_CLOCK_STEP = 10**9
"""A file that was written less than a second ago may change once more without another modification time."""


def _check_content(path: Path) -> None:
    status = path.stat()
    version = (str(path.absolute()), status.st_size, status.st_mtime_ns)
    if version not in _checked:
        open_checked(path, error=DataError, remedy=_REMEDY).close()
        if time.time_ns() - status.st_mtime_ns > _CLOCK_STEP:
            _checked.add(version)


def _read_classes(path: Path) -> tuple[str, ...]:
    """The names in the file; none if it does not exist."""
    if not path.exists():
        return ()
    with readable(path):
        check_regular(path)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path} is not text in UTF-8: write the name of one class per line.") from None
    return tuple(line.strip() for line in text.splitlines() if line.strip())
