"""Corrupt a batch of images: the one entry point to the 19 corruptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws, ShiftError, map_threads

from .pixels import load_nchw, load_nhwc, store_nchw, store_nhwc, to_uint8
from .registry import ConstantSet, Corruption, find_corruption

Batch = TypeVar("Batch", npt.NDArray[np.uint8], Tensor)
Index = Sequence[int] | npt.NDArray[np.int64] | Tensor

_GPU_CHUNK = 1 << 26
_LARGEST_CIFAR_SIDE = 64


def corrupt(
    images: Batch,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    index: Index | None = None,
    constants: Literal["auto", "cifar", "imagenet"] = "auto",
) -> Batch:
    """Apply one corruption at one severity to a batch.

    `name` is one of `names("all")`, or registered.

    `images` is a uint8 array NHWC or a uint8 tensor NCHW on any device, with any number of channels; the result has the
    same type, layout and device. Corruptions that mix colours see a grey image as RGB with three equal channels, and
    make the result grey again; for other numbers of channels they are not defined.

    `index` is the position of each image in its data set, by default in the batch. Together with the seed, the
    corruption and the severity it determines what is drawn for the image, so that batch size, order, number of workers
    and device make no difference.

    `constants` chooses the severities of CIFAR-10-C or of ImageNet-C. "auto" takes the CIFAR constants for images
    whose longer side has at most 64 pixels, and the ImageNet constants for larger ones.
    """
    corruption = find_corruption(name)
    height, width, channels = _check_images(images, corruption)
    if corruption.mixes_channels and channels == 1:
        colour = images.expand(-1, 3, -1, -1) if isinstance(images, Tensor) else np.repeat(images, 3, 3)
        options: dict[str, Any] = {"seed": seed, "index": index, "constants": constants}
        return _to_grey(corrupt(colour, name, severity, **options))  # type: ignore[no-any-return]
    indices = check_index(range(len(images)) if index is None else index, len(images))
    if isinstance(severity, bool) or severity not in (1, 2, 3, 4, 5):
        raise ShiftError(f"severity is {severity!r}, but it must be an integer from 1 to 5.")
    if constants not in ("auto", "cifar", "imagenet"):
        raise ShiftError(f"constants is {constants!r}, but it must be auto, cifar or imagenet.")
    by_size: ConstantSet = "cifar" if max(height, width) <= _LARGEST_CIFAR_SIDE else "imagenet"
    c = corruption.constant(severity, by_size if constants == "auto" else constants)
    on_cpu = not isinstance(images, Tensor) or images.device.type == "cpu"
    step = max(1, (corruption.chunk if on_cpu else _GPU_CHUNK) // (channels * height * width))
    if on_cpu and len(images) > step:
        # Chunks of equal size, and as many for each thread, so that no thread waits for the last chunk.
        threads = torch.get_num_threads()
        chunks = -(-len(images) // (step * threads)) * threads
        step = -(-len(images) // chunks)
    result: Any = torch.empty_like(images) if isinstance(images, Tensor) else np.empty(images.shape, np.uint8)

    def process_chunk(start: int) -> None:
        chunk, target = images[start : start + step], result[start : start + step]
        device = chunk.device if isinstance(chunk, Tensor) else torch.device("cpu")
        draws = Draws(seed, name, severity, indices[start : start + step], device)
        if corruption.works_on == "nhwc":
            store_nhwc(corruption.function(load_nhwc(chunk), c, draws), target)
        elif corruption.works_on == "uint8":
            store_nchw(corruption.function(load_nchw(chunk), c, draws), target)
        else:
            x = load_nchw(chunk).to(torch.float32).div_(255.0)
            store_nchw(to_uint8(corruption.function(x, c, draws).mul(255.0)), target)

    starts = range(0, len(images), step)
    if on_cpu:
        map_threads(process_chunk, starts)
    else:
        for start in starts:
            process_chunk(start)
    return result  # type: ignore[no-any-return]


def _to_grey(images: Any) -> Any:
    """The luma of RGB images, 0.299·R + 0.587·G + 0.114·B rounded, as one channel."""
    is_array, axis = isinstance(images, np.ndarray), -1 if isinstance(images, np.ndarray) else 1
    planes = torch.from_numpy(images).moveaxis(-1, 1) if is_array else images
    red, green, blue = planes.to(torch.float32).unbind(1)
    grey = (0.299 * red + 0.587 * green + 0.114 * blue).round_().to(torch.uint8).unsqueeze(axis)
    return grey.numpy() if is_array else grey


def _check_images(images: Any, corruption: Corruption) -> tuple[int, int, int]:
    """Check a batch and return the height, width and channels of its images."""
    if not isinstance(images, np.ndarray | Tensor):
        kind = type(images).__name__
        raise ShiftError(f"images is a {kind}, but it must be a numpy array or a torch tensor.")
    if images.dtype not in (np.uint8, torch.uint8):
        raise ShiftError(f"images has dtype {images.dtype}, but it must be uint8, from 0 to 255.")
    is_array = isinstance(images, np.ndarray)
    layout = "NHWC" if is_array else "NCHW"
    shape = tuple(images.shape)
    if len(shape) != 4:
        raise ShiftError(f"images has shape {shape}, but a batch has four dimensions, {layout}.")
    channels = shape[3 if is_array else 1]
    height, width = shape[1:3] if is_array else shape[2:]
    if channels not in (1, 3) and shape[1 if is_array else 3] in (1, 3):
        raise ShiftError(f"images has {channels} channels in {layout} shape {shape}: permute it.")
    corruption.check_shape(channels, height, width)
    return height, width, channels


def check_index(index: Index, count: int, what: str = "images") -> Tensor:
    """The indices as int64 on the CPU, after checking that there is one for each image or row."""
    indices = torch.as_tensor(index).detach().cpu()
    if indices.ndim != 1 or len(indices) != count:
        raise ShiftError(
            f"index has shape {tuple(indices.shape)}, but it must have one entry for each of {count} {what}."
        )
    if count and (indices.is_floating_point() or indices.dtype == torch.bool):
        raise ShiftError(f"index has dtype {indices.dtype}, but it must hold integers.")
    return indices.to(torch.int64)
