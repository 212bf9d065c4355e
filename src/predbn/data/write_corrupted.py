"""Write corrupted copies of a data set in the two published layouts.

CIFAR-10-C: `<name>.npy`, uint8 [5·N, H, W, 3], the five severities one after another, and `labels.npy`, which repeats
the labels five times. ImageNet-C: `<name>/<severity>/<wnid>/<image>.JPEG` with quality 85.

Both can be killed at any time. `corrupt.json` beside the files records what they were made from: a second run with the
same inputs keeps the existing files and writes those that are missing or damaged, a run with other inputs is refused.
A lock keeps a second process out of the folder. Each file has a checksum, after the array or in a comment of the JPEG.
All cores work on it, as threads: OpenCV, Pillow and torch release the interpreter lock.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from predbn.common import (
    DataError,
    Progress,
    atomic_write,
    map_threads,
    read_checked,
    write_array,
    write_array_in_parts,
)
from predbn.shifts import corrupt, find_corruption

from .imagenetc import PUBLISHED_CROP
from .npy import check_labels, load_array
from .output import open_output
from .picture_content import add_checksum_field
from .pictures import Listing, Pixels, list_pictures, read_pictures
from .reading import readable
from .shifted import SEVERITIES

CARD = "corrupt.json"

_JPEG_OPTIONS = [cv2.IMWRITE_JPEG_QUALITY, 85, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
_PICTURES_PER_CHUNK = 16
_IMAGES_PER_CALL = 2000


def write_cifar10c(
    images: Path | Pixels,
    labels: Path | npt.NDArray[np.integer[Any]],
    out: Path,
    names: Sequence[str],
    *,
    seed: int,
    constants: str = "auto",
    progress: Progress = lambda done, total: None,
) -> None:
    """Write the arrays of these corruptions; `progress` is called with the number of splits done and the total."""
    clean = images if isinstance(images, np.ndarray) else load_array(images)
    truth = labels if isinstance(labels, np.ndarray) else load_array(labels)
    origin, labels_origin = (
        f"the array of {what}" if isinstance(given, np.ndarray) else str(given)
        for what, given in (("images", images), ("labels", labels))
    )
    if clean.ndim != 4 or clean.shape[3] != 3 or clean.dtype != np.uint8:
        raise DataError(f"{origin} is {clean.dtype} {clean.shape}, but must be uint8 [N, height, width, 3].")
    if truth.shape != (len(clean),):
        raise DataError(
            f"{origin} has {len(clean)} images, but the labels in {labels_origin} have shape {truth.shape}."
        )
    check_labels(labels_origin, truth, len(clean))
    options: dict[str, Any] = {"seed": seed, "constants": constants}
    card = {"layout": "cifar10c", **options, "clean": _digest(clean)}
    _check(card, names)
    with open_output(out, CARD, card):
        write_array(out / "labels.npy", np.tile(truth, len(SEVERITIES)))
        shape = (len(SEVERITIES) * len(clean), *clean.shape[1:])
        missing = [name for name in names if not _is_complete(out / f"{name}.npy", shape)]
        total, done = len(names) * len(SEVERITIES), (len(names) - len(missing)) * len(SEVERITIES)
        progress(done, total)

        def parts(name: str) -> Iterator[Pixels]:
            nonlocal done
            for severity in SEVERITIES:
                for start in range(0, len(clean), _IMAGES_PER_CALL):
                    chunk = np.ascontiguousarray(clean[start : start + _IMAGES_PER_CALL])
                    yield corrupt(chunk, name, severity, index=range(start, start + len(chunk)), **options)
                done += 1
                progress(done, total)

        for name in missing:
            write_array_in_parts(out / f"{name}.npy", parts(name), dtype="|u1", row_shape=clean.shape[1:])


def write_imagenetc(
    source: Path,
    out: Path,
    names: Sequence[str],
    *,
    seed: int,
    constants: str = "auto",
    progress: Progress = lambda done, total: None,
) -> None:
    """Write the pictures of a folder `<wnid>/<image>` under each corruption and severity.

    The shorter side of a picture is resized to 256 pixels and its centre of 224 × 224 is cropped, unless it already
    has that size. Its index is its position in the sorted list of all pictures.
    """
    listing = list_pictures(source)
    _check_collisions(listing)
    paths = [listing.path(position) for position in range(len(listing))]
    with readable(source):
        sizes = "\n".join(f"{name} {os.stat(path).st_size}" for name, path in zip(listing.names, paths, strict=True))
    clean = hashlib.sha256(sizes.encode()).hexdigest()
    options: dict[str, Any] = {"seed": seed, "constants": constants}
    card = {"layout": "imagenetc", **options, "clean": clean}
    _check(card, names)
    splits = [(name, severity) for name in names for severity in SEVERITIES]
    with open_output(out, CARD, card):
        total = len(paths) * len(splits)
        progress(0, total)
        for start in range(0, len(paths), _PICTURES_PER_CHUNK):
            stop = min(start + _PICTURES_PER_CHUNK, len(paths))
            _write_pictures(out, paths[start:stop], start, splits, options)
            progress(stop * len(splits), total)


def _check(card: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        find_corruption(name)
    if card["constants"] not in ("auto", "cifar", "imagenet"):
        raise DataError(f"constants is {card['constants']!r}, but it must be auto, cifar or imagenet.")


def _check_collisions(listing: Listing) -> None:
    """Raise an error if two pictures would be written to the same file, because they differ only in their suffix."""
    first: dict[str, str] = {}
    for name in listing.names:
        other = first.setdefault(name.rpartition(".")[0], name)
        if other != name:
            target = f"{name.rpartition('.')[0]}.JPEG"
            raise DataError(f"{listing.root} has {other} and {name}, which both become {target}: rename one of them.")


def _is_complete(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether an array was written and is not damaged."""
    try:
        array = load_array(path)
    except DataError:
        return False
    return array.dtype == np.uint8 and array.shape == shape


def _write_pictures(
    out: Path, paths: Sequence[str], first: int, splits: Sequence[tuple[str, int]], options: Mapping[str, Any]
) -> None:
    """Write a few pictures under all splits, except for intact files; `first` is the index of the first picture."""

    def find_missing(split: tuple[str, int]) -> dict[int, Path]:
        folder = out / split[0] / str(split[1])
        targets = [folder / Path(path).parent.name / f"{Path(path).stem}.JPEG" for path in paths]
        return {position: target for position, target in enumerate(targets) if not _is_intact(target)}

    missing = map_threads(find_missing, splits)
    if not any(missing):
        return
    images = read_pictures(paths, PUBLISHED_CROP)

    def write(work: tuple[tuple[str, int], dict[int, Path]]) -> None:
        (name, severity), targets = work
        if targets:
            positions = np.array(list(targets))
            corrupted = corrupt(images[positions], name, severity, index=positions + first, **options)
            for image, target in zip(corrupted, targets.values(), strict=True):
                _write_jpeg(target, image)

    map_threads(write, list(zip(splits, missing, strict=True)))


def _is_intact(path: Path) -> bool:
    """Whether a picture was written and is not damaged."""
    try:
        return bool(read_checked(path, error=DataError, remedy=""))
    except (DataError, FileNotFoundError):
        return False


def _write_jpeg(path: Path, image: Pixels) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    jpeg = cv2.imencode(".jpg", image[..., ::-1], _JPEG_OPTIONS)[1].tobytes()
    with atomic_write(path, checksum=True) as part:
        part.write_bytes(add_checksum_field(jpeg))


def _digest(array: npt.NDArray[Any]) -> str:
    """SHA-256 of the type, the shape and the values of an array."""
    digest = hashlib.sha256(str((array.dtype, array.shape)).encode())
    for start in range(0, len(array), 4096):
        digest.update(np.ascontiguousarray(array[start : start + 4096]).tobytes())
    return digest.hexdigest()
