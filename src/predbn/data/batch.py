"""What every data set yields, and the few steps that all of them share on the way there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError

__all__ = ["Batch", "Device", "Order", "gather", "pick", "positions_of", "send", "steps_of"]

Order = Sequence[int] | npt.NDArray[np.integer] | Tensor
Device = torch.device | str | int


class Batch(NamedTuple):
    """Images with their labels, and which image each one is in its data set.

    The index is what the random draws of `predbn.shifts` follow from; it goes wherever its image goes, so that
    neither batch size nor order changes what is drawn.
    """

    images: Tensor
    """uint8 [n, 3, H, W], contiguous, on the device asked for."""
    labels: Tensor
    """int64 [n], on the same device."""
    index: Tensor  # type: ignore[assignment]
    """int64 [n], on the CPU."""

    @property
    def inputs(self) -> Tensor:
        """The images, by the name that rows of a table have too."""
        return self.images


def positions_of(order: Order | None, count: int) -> Tensor:
    """The positions to visit, int64 on the CPU: the given ones, or all `count` of them from first to last."""
    if order is None:
        return torch.arange(count)
    positions = torch.as_tensor(order).detach().cpu()
    if positions.ndim != 1:
        raise DataError(f"order has shape {tuple(positions.shape)}, but it must be a list of positions.")
    if not len(positions):
        return torch.empty(0, dtype=torch.int64)
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise DataError(f"order has dtype {positions.dtype}, but positions are whole numbers.")
    positions = positions.to(torch.int64)
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= count:
        wrong = low if low < 0 else high
        raise DataError(f"order has the position {wrong}, but there are {count} images, numbered from 0.")
    return positions


def steps_of(order: Order | None, count: int, size: int) -> list[Tensor]:
    """The positions of each batch: at most `size` each, the last one what is left."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise DataError(f"size is {size!r}, but a batch has a whole number of images, at least 1.")
    positions = positions_of(order, count)
    return list(positions.split(int(size))) if len(positions) else []


def gather(tensor: Tensor, positions: Tensor, device: torch.device) -> Tensor:
    """The rows at these positions, copied, contiguous, where they are; in page-locked memory if they go to a GPU."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        rows = torch.empty((len(positions), *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=True)
        return torch.index_select(tensor, 0, positions, out=rows)
    return tensor.index_select(0, positions.to(tensor.device)).contiguous()


def pick(tensor: Tensor, positions: Tensor, device: torch.device) -> Tensor:
    """The rows at these positions, copied, contiguous, on the device.

    From the CPU to a GPU they go from page-locked memory, so that the copy overlaps with the work still queued there;
    the allocator keeps that memory until the copy is done.
    """
    return gather(tensor, positions, device).to(device, non_blocking=True)


def send(pixels: npt.NDArray[np.uint8], device: torch.device) -> Tensor:
    """Pixels [n, H, W, 3] as [n, 3, H, W] on the device, which turns them round where it is faster."""
    rows = torch.from_numpy(pixels)
    if device.type == "cuda":
        rows = rows.pin_memory().to(device, non_blocking=True)
    return rows.permute(0, 3, 1, 2).contiguous().to(device)
