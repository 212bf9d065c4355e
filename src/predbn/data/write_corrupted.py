"""Write corrupted copies of a data set in the two published layouts.

CIFAR-10-C: `<name>.npy`, uint8 [5·N, H, W, 3], the five severities one after another, and `labels.npy`,
which repeats the labels five times. ImageNet-C: `<name>/<severity>/<wnid>/<image>.JPEG` at quality 85.

Both can be killed at any moment. A run card beside the files says what they were made from; a second run
with the same card leaves alone what is there and makes the rest, one with another card refuses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch

from predbn.common import PART, ShiftError, finish, part_of, write_array, write_bytes
from predbn.shifts import corrupt
from predbn.shifts import find_corruption as find

from .clean_files import digest_of, list_pictures, read_array, read_crop

__all__ = ["write_cifar10c", "write_imagenetc"]

CARD = "corrupt.json"
SEVERITIES = (1, 2, 3, 4, 5)
Images = npt.NDArray[np.uint8]
Report = Callable[[int, int], None]

_QUALITY = 85
_BATCH = 16


def _nothing(done: int, total: int) -> None:
    """Report to nobody."""


def write_cifar10c(
    images: Path | Images,
    labels: Path | npt.NDArray[np.integer[Any]],
    out: Path,
    names: Sequence[str],
    *,
    seed: int,
    processes: int = 1,
    constants: str = "auto",
    report: Report = _nothing,
) -> None:
    """Write the arrays of the given corruptions; `report(done, total)` hears of every split that is done."""
    clean, truth = read_array(images, "images"), read_array(labels, "labels")
    if clean.ndim != 4 or clean.shape[3] != 3 or clean.dtype != np.uint8:
        raise ShiftError(f"The images are {clean.dtype} {clean.shape}, but they must be uint8 [N, height, width, 3].")
    if truth.shape != (len(clean),):
        raise ShiftError(f"There are {len(clean)} images, but the labels have shape {truth.shape}.")
    _open(
        out,
        {"layout": "cifar10c", "seed": seed, "constants": constants, "clean": digest_of(clean)},
        names,
        processes,
    )
    write_array(out / "labels.npy", np.tile(truth, len(SEVERITIES)))
    total, done = len(names) * len(SEVERITIES), 0
    todo = [name for name in names if not (out / f"{name}.npy").exists()]
    done += len(SEVERITIES) * (len(names) - len(todo))
    report(done, total)
    for name in todo:
        shape = (len(SEVERITIES) * len(clean), *clean.shape[1:])
        np.lib.format.open_memmap(part_of(out / f"{name}.npy"), mode="w+", dtype=np.uint8, shape=shape)
    left = dict.fromkeys(todo, len(SEVERITIES))
    jobs = [(str(out / f"{name}.npy"), name, severity, seed, constants) for name in todo for severity in SEVERITIES]
    for name in _work(_fill, jobs, processes, clean):
        left[name] -= 1
        if not left[name]:
            finish(out / f"{name}.npy")
        done += 1
        report(done, total)


def write_imagenetc(
    source: Path,
    out: Path,
    names: Sequence[str],
    *,
    seed: int,
    processes: int = 1,
    constants: str = "auto",
    report: Report = _nothing,
) -> None:
    """Write the pictures of a folder `<wnid>/<image>` under each corruption and severity.

    A picture is scaled until its shorter side has 256 pixels and its middle 224 × 224 are taken, unless it
    has just that size already. Its index is its place in the sorted list of all pictures.
    """
    pictures = list_pictures(source)
    listing = "\n".join(f"{path.relative_to(source)} {path.stat().st_size}" for path in pictures)
    clean = hashlib.sha256(listing.encode()).hexdigest()
    _open(out, {"layout": "imagenetc", "seed": seed, "constants": constants, "clean": clean}, names, processes)
    places = [str(path) for path in pictures]
    jobs = [
        (str(out), places[start : start + _BATCH], start, tuple(names), seed, constants)
        for start in range(0, len(places), _BATCH)
    ]
    total, done = len(places) * len(names) * len(SEVERITIES), 0
    report(done, total)
    for count in _work(_draw, jobs, processes, None):
        done += count
        report(done, total)


_clean: Any = None


def _begin(clean: Any, threads: int) -> None:
    """What a process needs once: its share of the cores, and the clean images."""
    global _clean
    _clean = clean
    torch.set_num_threads(threads)
    cv2.setNumThreads(1)


def _work(function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], processes: int, clean: Any) -> Iterator[Any]:
    """function(*job) for all jobs, in whatever order they end; in this process where one is enough."""
    if processes == 1:
        global _clean
        _clean = clean
        for job in jobs:
            yield function(*job)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, _begin, (clean, 1)) as pool:
        futures: list[Future[Any]] = [pool.submit(function, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _fill(path: str, name: str, severity: int, seed: int, constants: Any) -> str:
    """One severity's part of a CIFAR-10-C array, written straight into the file."""
    array = np.load(part_of(Path(path)), mmap_mode="r+")
    count = len(_clean)
    start = (severity - 1) * count
    for first in range(0, count, 2000):
        piece = np.ascontiguousarray(_clean[first : first + 2000])
        index = np.arange(first, first + len(piece))
        done = corrupt(piece, name, severity, seed=seed, index=index, constants=constants)
        array[start + first : start + first + len(piece)] = done
    array.flush()
    return name


def _draw(out: str, places: list[str], first: int, names: tuple[str, ...], seed: int, constants: Any) -> int:
    """All corruptions of a few pictures, those left out whose file is there."""
    targets = {}
    for name in names:
        for severity in SEVERITIES:
            folder = Path(out) / name / str(severity)
            files = [folder / Path(p).parent.name / (Path(p).stem + ".JPEG") for p in places]
            missing = [i for i, file in enumerate(files) if not file.exists()]
            if missing:
                targets[name, severity] = (missing, files)
    if targets:
        images = np.stack([read_crop(place) for place in places])
        for (name, severity), (missing, files) in targets.items():
            index = np.array(missing) + first
            done = corrupt(images[missing], name, severity, seed=seed, index=index, constants=constants)
            for image, place in zip(done, missing, strict=True):
                files[place].parent.mkdir(parents=True, exist_ok=True)
                options = [cv2.IMWRITE_JPEG_QUALITY, _QUALITY, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
                write_bytes(files[place], cv2.imencode(".jpg", image[..., ::-1], options)[1].tobytes())
    return len(places) * len(names) * len(SEVERITIES)


def _open(out: Path, card: dict[str, Any], names: Sequence[str], processes: int) -> None:
    """Make or continue an output directory, once all is known to be right; leftovers of a killed run go."""
    for name in names:
        find(name)
    if card["constants"] not in ("auto", "cifar", "imagenet"):
        raise ShiftError(f"constants is {card['constants']!r}, but it must be auto, cifar or imagenet.")
    if processes < 1:
        raise ShiftError(f"processes is {processes}, but there must be at least 1.")
    if out.exists() and not out.is_dir():
        raise ShiftError(f"{out} is a file, but the output goes into a directory.")
    place = out / CARD
    if place.exists():
        if json.loads(place.read_text()) != card:
            raise ShiftError(f"{out} was begun from other images, seed or constants: choose another one.")
    elif out.exists() and any(out.iterdir()):
        raise ShiftError(f"{out} is not empty and was not made by this command: choose another directory.")
    out.mkdir(parents=True, exist_ok=True)
    for leftover in out.rglob("*" + PART):
        leftover.unlink()
    write_bytes(place, (json.dumps(card, indent=1) + "\n").encode())
