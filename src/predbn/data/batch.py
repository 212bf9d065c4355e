"""Batches of images: their type, the order in which they are visited, and how they reach a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import DataError
from predbn.shifts import orders

Order = Sequence[int] | npt.NDArray[np.integer] | Tensor
Device = torch.device | str | int


class ImageBatch(NamedTuple):
    """Images with their labels and their index in the data set.

    The random draws of `predbn.shifts` depend on the index. It stays with its image, so that neither the batch size nor
    the order changes what is drawn.
    """

    images: Tensor
    """uint8 [n, C, H, W], or floats of a loader, contiguous, on the requested device."""
    labels: Tensor
    """int64 [n], on the same device."""
    index: Tensor  # type: ignore[assignment]
    """int64 [n], on the CPU."""

    @property
    def inputs(self) -> Tensor:
        """The images, under the name that batches of table rows use."""
        return self.images


def resolve_order(order: Order | None, count: int) -> Tensor:
    """The positions to visit, int64 on the CPU; without an order, all `count` of them from first to last."""
    if order is None:
        return torch.arange(count)
    positions = torch.as_tensor(order).detach().cpu()
    if positions.ndim != 1:
        raise DataError(f"order has shape {tuple(positions.shape)}, but it must be a list of positions.")
    if not len(positions):
        return torch.empty(0, dtype=torch.int64)
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise DataError(f"order has dtype {positions.dtype}, but positions must be integers.")
    positions = positions.to(torch.int64)
    low, high = int(positions.min()), int(positions.max())
    if low < 0 or high >= count:
        wrong = low if low < 0 else high
        raise DataError(f"order has the position {wrong}, but there are {count} images, numbered from 0.")
    return positions


def batch_positions(order: Order | None, count: int, size: int) -> list[Tensor]:
    """The positions of each batch of at most `size`; only the last batch may be smaller."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise DataError(f"size is {size!r}, but the batch size must be an integer of at least 1.")
    positions = resolve_order(order, count)
    return list(positions.split(int(size))) if len(positions) else []


def gather_rows(tensor: Tensor, positions: Tensor, device: torch.device) -> Tensor:
    """A contiguous copy of the rows at these positions, in pinned memory if they go from the CPU to a GPU."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        rows = torch.empty((len(positions), *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=True)
        return torch.index_select(tensor, 0, positions, out=rows)
    return tensor.index_select(0, positions.to(tensor.device)).contiguous()


def choose_positions(count: int, wanted: int | None) -> Tensor:
    """Which of `count` images a run with that many uses, sorted: the same ones for all orders and seeds."""
    if wanted is None:
        return torch.arange(count)
    if wanted > count:
        raise DataError(f"Expected at most {count} images, as many as the data has, but got {wanted}.")
    return torch.from_numpy(np.sort(orders.shuffled(count, seed=0)[:wanted]))


def rows_to_device(tensor: Tensor, positions: Tensor, device: torch.device) -> Tensor:
    """A contiguous copy of the rows at these positions, on the device.

    Rows go to a GPU from pinned memory, so that the copy overlaps with the work that is queued there; the allocator
    keeps that memory until the copy is done.
    """
    return gather_rows(tensor, positions, device).to(device, non_blocking=True)


def pixels_to_device(pixels: npt.NDArray[np.uint8], device: torch.device) -> Tensor:
    """Pixels [n, H, W, C] as a tensor [n, C, H, W] on the device, transposed there."""
    tensor = torch.from_numpy(pixels)
    if device.type == "cuda":
        tensor = tensor.pin_memory().to(device, non_blocking=True)
    return tensor.permute(0, 3, 1, 2).contiguous().to(device)
