"""Corrupt a batch of images: the one entrance to the 19 corruptions."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws, ShiftError, map_threads

from .grey import to_grey
from .layout import load_pixels, load_planes, store_pixels, store_planes
from .registry import ConstantSet, Corruption, get, names

__all__ = ["Batch", "Index", "check_index", "corrupt", "find"]

Batch = TypeVar("Batch", npt.NDArray[np.uint8], Tensor)
Index = Sequence[int] | npt.NDArray[np.int64] | Tensor

_GPU_CHUNK = 1 << 26
_AUTO_SIDE = 64


def corrupt(
    images: Batch,
    name: str,
    severity: int,
    *,
    seed: int,
    index: Index,
    constants: Literal["auto", "cifar", "imagenet"] = "auto",
) -> Batch:
    """Images of a batch under one corruption at one severity.

    `images` is a uint8 array NHWC or a uint8 tensor NCHW, on any device, with three channels; the result has
    the same type, layout and device. `index` says which image each one is in its data set: together with the
    seed, the corruption and the severity it fixes what is drawn for the image, so that batch size, order,
    number of workers and device make no difference.

    `constants` chooses the severities of CIFAR-10-C or of ImageNet-C. "auto" takes the CIFAR constants for
    images whose longer side is at most 64 pixels, and the ImageNet constants above.
    """
    entry = find(name)
    height, width = _check_images(images, entry)
    indices = check_index(index, len(images))
    if isinstance(severity, bool) or severity not in (1, 2, 3, 4, 5):
        raise ShiftError(f"severity is {severity!r}, but it must be a whole number from 1 to 5.")
    if constants not in ("auto", "cifar", "imagenet"):
        raise ShiftError(f"constants is {constants!r}, but it must be auto, cifar or imagenet.")
    chosen: ConstantSet
    if constants == "auto":
        chosen = "cifar" if max(height, width) <= _AUTO_SIDE else "imagenet"
    else:
        chosen = constants
    c = entry.constant(severity, chosen)
    on_cpu = not isinstance(images, Tensor) or images.device.type == "cpu"
    step = max(1, (entry.chunk if on_cpu else _GPU_CHUNK) // (3 * height * width))
    if on_cpu and len(images) > step:
        threads = torch.get_num_threads()
        pieces = -(-len(images) // (step * threads)) * threads
        step = -(-len(images) // pieces)
    result: Any = torch.empty_like(images) if isinstance(images, Tensor) else np.empty(images.shape, np.uint8)

    def work(start: int) -> None:
        piece, target = images[start : start + step], result[start : start + step]
        device = piece.device if isinstance(piece, Tensor) else torch.device("cpu")
        draws = Draws(seed, name, severity, indices[start : start + step], device)
        if entry.works_on == "nhwc":
            store_pixels(entry.function(load_pixels(piece), c, draws), target)
        else:
            store_planes(_apply(entry, load_planes(piece), c, draws), target)

    starts = range(0, len(images), step)
    if on_cpu:
        map_threads(work, starts)
    else:
        for start in starts:
            work(start)
    return result  # type: ignore[no-any-return]


def _apply(entry: Corruption, x: Tensor, c: Any, draws: Draws) -> Tensor:
    """Run one function on uint8 NCHW, with the scaling, the clipping and the cast that it leaves out."""
    if entry.works_on == "uint8":
        return entry.function(x, c, draws)
    done = entry.function(x.to(torch.float32).div_(255.0), c, draws)
    return to_grey(done.mul(255.0))


def find(name: str) -> Corruption:
    """The registered corruption, or an error that offers the nearest name."""
    known = names("all")
    if name in known:
        return get(name)
    plain = str(name).lower().replace("-", "_").replace(" ", "_")
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}."
    raise ShiftError(f"There is no corruption called {name!r}: {hint}")


def _check_images(images: Any, entry: Corruption) -> tuple[int, int]:
    """Height and width of a good batch."""
    if not isinstance(images, np.ndarray | Tensor):
        kind = type(images).__name__
        raise ShiftError(f"images is a {kind}, but it must be a numpy array or a torch tensor.")
    if images.dtype not in (np.uint8, torch.uint8):
        raise ShiftError(f"images has dtype {images.dtype}, but corruptions work on uint8, from 0 to 255.")
    array = isinstance(images, np.ndarray)
    layout = "NHWC" if array else "NCHW"
    shape = tuple(images.shape)
    if len(shape) != 4:
        raise ShiftError(f"images has shape {shape}, but a batch has four dimensions, {layout}.")
    channels = shape[3 if array else 1]
    if channels != 3:
        raise ShiftError(f"images has {channels} channels in {layout} shape {shape}, but it must have 3.")
    height, width = shape[1:3] if array else shape[2:]
    if min(height, width) < entry.smallest:
        size, least = f"{height}×{width}", f"{entry.smallest}×{entry.smallest}"
        raise ShiftError(f"images are {size} pixels, but {entry.name} needs at least {least}.")
    return height, width


def check_index(index: Index, count: int, what: str = "images") -> Tensor:
    """The indices as int64 on the CPU, one for each image or row."""
    indices = torch.as_tensor(index).detach().cpu()
    if indices.ndim != 1 or len(indices) != count:
        raise ShiftError(f"index has shape {tuple(indices.shape)}, but there are {count} {what} to index.")
    if count and (indices.is_floating_point() or indices.dtype == torch.bool):
        raise ShiftError(f"index has dtype {indices.dtype}, but it must hold whole numbers.")
    return indices.to(torch.int64)
