"""Write corrupted copies of a data set in the two published layouts.

CIFAR-10-C: `<name>.npy`, uint8 [5·N, H, W, 3], the five severities one after another, and `labels.npy`, which repeats
the labels five times. ImageNet-C: `<name>/<severity>/<wnid>/<image>.JPEG` with quality 85.

Both can be killed at any time. `corrupt.json` beside the files records what they were made from: a second run with the
same inputs keeps the existing files and makes the missing ones, a run with other inputs is refused. A lock keeps a
second process out of the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch

from predbn.common import DataError, Progress, finish_partial, partial_path, process_pool, write_array, write_bytes
from predbn.shifts import corrupt, find_corruption

from .imagenetc import PUBLISHED_CROP
from .npy import load_array
from .output import open_output
from .pictures import Pixels, list_pictures, read_picture
from .shifted import SEVERITIES

CARD = "corrupt.json"

_JPEG_OPTIONS = [cv2.IMWRITE_JPEG_QUALITY, 85, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
_PICTURES_PER_JOB = 16
_IMAGES_PER_CALL = 2000


def write_cifar10c(
    images: Path | Pixels,
    labels: Path | npt.NDArray[np.integer[Any]],
    out: Path,
    names: Sequence[str],
    *,
    seed: int,
    processes: int = 1,
    constants: str = "auto",
    progress: Progress = lambda done, total: None,
) -> None:
    """Write the arrays of these corruptions; `progress` is called with the number of splits done and the total."""
    clean = images if isinstance(images, np.ndarray) else load_array(images)
    truth = labels if isinstance(labels, np.ndarray) else load_array(labels)
    if clean.ndim != 4 or clean.shape[3] != 3 or clean.dtype != np.uint8:
        raise DataError(f"The images are {clean.dtype} {clean.shape}, but they must be uint8 [N, height, width, 3].")
    if truth.shape != (len(clean),):
        raise DataError(f"There are {len(clean)} images, but the labels have shape {truth.shape}.")
    card = {"layout": "cifar10c", "seed": seed, "constants": constants, "clean": _digest(clean)}
    _check(card, names, processes)
    with open_output(out, CARD, card):
        write_array(out / "labels.npy", np.tile(truth, len(SEVERITIES)))
        missing = [name for name in names if not (out / f"{name}.npy").exists()]
        total, done = len(names) * len(SEVERITIES), len(SEVERITIES) * (len(names) - len(missing))
        progress(done, total)
        shape = (len(SEVERITIES) * len(clean), *clean.shape[1:])
        for name in missing:
            np.lib.format.open_memmap(partial_path(out / f"{name}.npy"), mode="w+", dtype=np.uint8, shape=shape)
        jobs = [
            (str(out / f"{name}.npy"), name, severity, seed, constants) for name in missing for severity in SEVERITIES
        ]
        severities_left = dict.fromkeys(missing, len(SEVERITIES))
        for name in _run_jobs(_write_severity, jobs, processes, clean):
            severities_left[name] -= 1
            if not severities_left[name]:
                finish_partial(out / f"{name}.npy")
            done += 1
            progress(done, total)


def write_imagenetc(
    source: Path,
    out: Path,
    names: Sequence[str],
    *,
    seed: int,
    processes: int = 1,
    constants: str = "auto",
    progress: Progress = lambda done, total: None,
) -> None:
    """Write the pictures of a folder `<wnid>/<image>` under each corruption and severity.

    The shorter side of a picture is resized to 256 pixels and its centre of 224 × 224 is cropped, unless it already
    has that size. Its index is its position in the sorted list of all pictures.
    """
    listing = list_pictures(source)
    paths = [listing.path(position) for position in range(len(listing))]
    sizes = "\n".join(f"{name} {Path(path).stat().st_size}" for name, path in zip(listing.names, paths, strict=True))
    clean = hashlib.sha256(sizes.encode()).hexdigest()
    card = {"layout": "imagenetc", "seed": seed, "constants": constants, "clean": clean}
    _check(card, names, processes)
    with open_output(out, CARD, card):
        jobs = [
            (str(out), paths[start : start + _PICTURES_PER_JOB], start, tuple(names), seed, constants)
            for start in range(0, len(paths), _PICTURES_PER_JOB)
        ]
        total, done = len(paths) * len(names) * len(SEVERITIES), 0
        progress(done, total)
        for count in _run_jobs(_write_pictures, jobs, processes, None):
            done += count
            progress(done, total)


def _check(card: Mapping[str, Any], names: Sequence[str], processes: int) -> None:
    for name in names:
        find_corruption(name)
    if card["constants"] not in ("auto", "cifar", "imagenet"):
        raise DataError(f"constants is {card['constants']!r}, but it must be auto, cifar or imagenet.")
    if processes < 1:
        raise DataError(f"processes is {processes}, but there must be at least 1.")


_clean: Any = None
"""The clean images of this process, which are sent to it once and not with every job."""


def _start_worker(clean: Any) -> None:
    global _clean
    _clean = clean
    torch.set_num_threads(1)
    cv2.setNumThreads(1)


def _run_jobs(
    function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], processes: int, clean: Any
) -> Iterator[Any]:
    """function(*job) for all jobs, in the order in which they finish; with one process, run inline."""
    if processes == 1:
        global _clean
        _clean = clean
        for job in jobs:
            yield function(*job)
        return
    with process_pool(processes, initializer=_start_worker, arguments=(clean,), error=DataError) as pool:
        for future in as_completed([pool.submit(function, *job) for job in jobs]):
            yield future.result()


def _write_severity(path: str, name: str, severity: int, seed: int, constants: Any) -> str:
    """Write one severity of a CIFAR-10-C array directly into the temporary file."""
    array = np.load(partial_path(Path(path)), mmap_mode="r+")
    offset = (severity - 1) * len(_clean)
    for start in range(0, len(_clean), _IMAGES_PER_CALL):
        images = np.ascontiguousarray(_clean[start : start + _IMAGES_PER_CALL])
        index = np.arange(start, start + len(images))
        corrupted = corrupt(images, name, severity, seed=seed, index=index, constants=constants)
        array[offset + start : offset + start + len(images)] = corrupted
    array.flush()
    return name


def _write_pictures(out: str, paths: list[str], first: int, names: tuple[str, ...], seed: int, constants: Any) -> int:
    """Write all corruptions of a few pictures, except for files that exist; `first` is the index of the first one."""
    pending = {}
    for name in names:
        for severity in SEVERITIES:
            folder = Path(out) / name / str(severity)
            targets = [folder / Path(path).parent.name / f"{Path(path).stem}.JPEG" for path in paths]
            missing = [position for position, target in enumerate(targets) if not target.exists()]
            if missing:
                pending[name, severity] = (missing, targets)
    if pending:
        images = np.stack([read_picture(path, PUBLISHED_CROP) for path in paths])
        for (name, severity), (missing, targets) in pending.items():
            index = np.array(missing) + first
            corrupted = corrupt(images[missing], name, severity, seed=seed, index=index, constants=constants)
            for image, position in zip(corrupted, missing, strict=True):
                targets[position].parent.mkdir(parents=True, exist_ok=True)
                write_bytes(targets[position], cv2.imencode(".jpg", image[..., ::-1], _JPEG_OPTIONS)[1].tobytes())
    return len(paths) * len(names) * len(SEVERITIES)


def _digest(array: npt.NDArray[Any]) -> str:
    """SHA-256 of the type, the shape and the values of an array."""
    digest = hashlib.sha256(str((array.dtype, array.shape)).encode())
    for start in range(0, len(array), 4096):
        digest.update(np.ascontiguousarray(array[start : start + 4096]).tobytes())
    return digest.hexdigest()
