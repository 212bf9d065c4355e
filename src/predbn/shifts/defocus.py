"""Filtering with a disk, the image of a point through a lens out of focus.

A disk on a grid has few different rows, so the kernel is a short sum of separable filters, exact with no more
terms than the radius plus one:

    K = Σ_r λ_r·u_r·u_rᵀ

One or two terms, as the small disks of 32-pixel images have, are applied as they are. For the larger disks of
larger images a product of spectra costs less, and the same for every radius. K is symmetric about its centre,
so its spectrum is real.
"""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor
from torch.nn import functional

from .separable import SMALL_SIDE, Operator, mirrored_operator, sandwich

__all__ = ["defocus"]

_FEW_TERMS = 2


def defocus(x: Tensor, radius: float, softness: float) -> Tensor:
    """The planes of x [N, C, H, W] filtered with a disk; the border is mirrored about the edge pixels."""
    height, width = x.shape[-2:]
    rows = _terms(radius, softness, height, x.device)
    if len(rows) > _FEW_TERMS and min(height, width) > SMALL_SIDE:
        return _by_spectrum(x, radius, softness)
    blurred: Tensor | None = None
    for (scaled, _), (_, plain) in zip(rows, _terms(radius, softness, width, x.device), strict=True):
        blurred = sandwich(x, scaled, plain, out=blurred)
    assert blurred is not None
    return blurred


def _kernel(radius: float, softness: float) -> npt.NDArray[np.float32]:
    """A disk made smooth by a small Gaussian.

    Disks up to radius 8 stand on a grid of 17 by 17 and are smoothed on it, so that the disk of radius 8,
    which touches the edge of the grid, keeps inside what the Gaussian would have spread beyond.
    """
    reach = 8 if radius <= 8 else int(radius)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    size = 3 if radius <= 8 else 5
    kernel: npt.NDArray[np.float32] = cv2.GaussianBlur(disk / disk.sum(), (size, size), softness)
    return kernel


@lru_cache(maxsize=32)
def _terms(radius: float, softness: float, size: int, device: torch.device) -> tuple[tuple[Operator, Operator], ...]:
    """For each r the filters λ_r·u_r and u_r along an axis of that size."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(_kernel(radius, softness)).double())
    return tuple(
        (mirrored_operator(size, value * vector, device), mirrored_operator(size, vector, device))
        for value, vector in zip(values, vectors.T, strict=True)
        if abs(float(value)) > 1e-6
    )


def _by_spectrum(x: Tensor, radius: float, softness: float) -> Tensor:
    """Pad by the reach of the kernel, multiply the spectra, cut the padding off again."""
    height, width = x.shape[-2:]
    reach, spectrum, lengths = _spectrum(radius, softness, height, width, x.device)
    padded = functional.pad(x, (reach,) * 4, mode="reflect")
    filtered: Tensor = torch.fft.irfft2(torch.fft.rfft2(padded, s=lengths).mul_(spectrum), s=lengths)
    return filtered[..., reach : reach + height, reach : reach + width]


@lru_cache(maxsize=32)
def _spectrum(
    radius: float, softness: float, height: int, width: int, device: torch.device
) -> tuple[int, Tensor, tuple[int, int]]:
    """The reach of the kernel, its spectrum, and the lengths of the transform, which are fast ones."""
    kernel = torch.from_numpy(_kernel(radius, softness)).double()
    reach = len(kernel) // 2
    lengths = scipy.fft.next_fast_len(height + 2 * reach, True), scipy.fft.next_fast_len(width + 2 * reach, True)
    field = torch.zeros(lengths, dtype=torch.float64)
    field[: len(kernel), : len(kernel)] = kernel
    centred = field.roll((-reach, -reach), (0, 1))
    return reach, torch.fft.rfft2(centred).real.to(device, torch.float32), lengths
