"""Gaussian, zoom, defocus and glass blur. Motion blur has a file of its own."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor
from torch.nn import functional

from predbn.common import Draws

from .registry import register
from .separable import (
    SMALL_SIDE,
    Operator,
    apply_separable,
    gaussian_filter,
    mirrored_operator,
    zoom_operator,
)

_MAX_SEPARABLE_TERMS = 2


@register(
    "gaussian_blur",
    family="blur",
    cifar=(0.4, 0.6, 0.7, 0.8, 1.0),
    imagenet=(1.0, 2.0, 3.0, 4.0, 6.0),
    chunk=1 << 20,
)
def gaussian_blur(x: Tensor, c: float, draws: Draws) -> Tensor:
    """Gaussian filter of standard deviation c, truncated at 4c; outside of the image the edge pixel is repeated."""
    return gaussian_filter(x, c)


@register(
    "zoom_blur",
    family="blur",
    cifar=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    imagenet=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    min_side=2,
    chunk=1 << 20,
)
def zoom_blur(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """The mean of the image and its centre zooms: (x + Σ_z Z_z·x·Z_zᵀ)/(count + 1), z from 1 to c₀ in steps of c₁.

    numpy's arange decides how many zooms there are, because its rounding sometimes includes the stop itself. The first
    zoom, z = 1, is the image once more.
    """
    stop, step = c
    height, width = x.shape[-2:]
    zooms = np.arange(1, stop, step).tolist()
    total = x.mul(2)
    for zoom in zooms[1:]:
        rows = zoom_operator(height, zoom, x.device)
        apply_separable(x, rows, zoom_operator(width, zoom, x.device), out=total)
    return total.div_(len(zooms) + 1)


@register(
    "defocus_blur",
    family="blur",
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
    imagenet=((3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
)
def defocus_blur(x: Tensor, c: tuple[float, float], draws: Draws) -> Tensor:
    """A lens out of focus: a disk of radius c₀ smoothed by c₁; the border is mirrored."""
    return disk_filter(x, *c)


def disk_filter(x: Tensor, radius: float, softness: float) -> Tensor:
    """Filter the planes of x [N, C, H, W] with a smoothed disk; the image is mirrored about its edge pixels.

    A disk on a grid has few different rows, so the kernel is a short sum of separable filters, exact with no more
    terms than the radius plus one:

        K = Σ_r λ_r·u_r·u_rᵀ

    One or two terms, as for the small disks of 32-pixel images, are applied directly. For the larger disks of larger
    images a product of spectra is faster, and costs the same for every radius. K is symmetric about its centre, so its
    spectrum is real.
    """
    height, width = x.shape[-2:]
    rows = _disk_terms(radius, softness, height, x.device)
    if len(rows) > _MAX_SEPARABLE_TERMS and min(height, width) > SMALL_SIDE:
        return _filter_by_spectrum(x, radius, softness)
    blurred: Tensor | None = None
    for (scaled, _), (_, plain) in zip(rows, _disk_terms(radius, softness, width, x.device), strict=True):
        blurred = apply_separable(x, scaled, plain, out=blurred)
    assert blurred is not None
    return blurred


def _disk_kernel(radius: float, softness: float) -> npt.NDArray[np.float32]:
    """A disk smoothed by a small Gaussian.

    Disks up to radius 8 are smoothed on a grid of 17 × 17. The disk of radius 8 touches the edge of this grid, so that
    the part of the Gaussian that would reach beyond is reflected back into it.
    """
    reach = 8 if radius <= 8 else int(radius)
    line = np.arange(-reach, reach + 1)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float32)
    size = 3 if radius <= 8 else 5
    kernel: npt.NDArray[np.float32] = cv2.GaussianBlur(disk / disk.sum(), (size, size), softness)
    return kernel


@lru_cache(maxsize=32)
def _disk_terms(
    radius: float, softness: float, size: int, device: torch.device
) -> tuple[tuple[Operator, Operator], ...]:
    """For each r, the filters λ_r·u_r and u_r along an axis of that size."""
    values, vectors = torch.linalg.eigh(torch.from_numpy(_disk_kernel(radius, softness)).double())
    return tuple(
        (mirrored_operator(size, value * vector, device), mirrored_operator(size, vector, device))
        for value, vector in zip(values, vectors.T, strict=True)
        if abs(float(value)) > 1e-6
    )


def _filter_by_spectrum(x: Tensor, radius: float, softness: float) -> Tensor:
    """Pad by the radius of the kernel, multiply the spectra, and remove the padding."""
    height, width = x.shape[-2:]
    reach, spectrum, lengths = _disk_spectrum(radius, softness, height, width, x.device)
    padded = functional.pad(x, (reach,) * 4, mode="reflect")
    filtered: Tensor = torch.fft.irfft2(torch.fft.rfft2(padded, s=lengths).mul_(spectrum), s=lengths)
    return filtered[..., reach : reach + height, reach : reach + width]


@lru_cache(maxsize=32)
def _disk_spectrum(
    radius: float, softness: float, height: int, width: int, device: torch.device
) -> tuple[int, Tensor, tuple[int, int]]:
    """The radius of the kernel, its spectrum, and lengths for which the Fourier transform is fast."""
    kernel = torch.from_numpy(_disk_kernel(radius, softness)).double()
    reach = len(kernel) // 2
    lengths = scipy.fft.next_fast_len(height + 2 * reach, True), scipy.fft.next_fast_len(width + 2 * reach, True)
    field = torch.zeros(lengths, dtype=torch.float64)
    field[: len(kernel), : len(kernel)] = kernel
    centred = field.roll((-reach, -reach), (0, 1))
    return reach, torch.fft.rfft2(centred).real.to(device, torch.float32), lengths


@register(
    "glass_blur",
    family="blur",
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    works_on="uint8",
    min_side=9,
)
def glass_blur(x: Tensor, c: tuple[float, int, int], draws: Draws) -> Tensor:
    """Frosted glass: blur by σ, shuffle pixels within a distance for some rounds, blur by σ again."""
    sigma, reach, rounds = c
    number, channels, height, width = x.shape
    blurred = _truncated_gaussian(x, sigma).transpose(0, 1).reshape(channels, -1)
    source = shuffled_pixels(draws, height, width, reach, rounds)
    shuffled = torch.stack([plane.index_select(0, source) for plane in blurred])
    return _truncated_gaussian(shuffled.view(channels, number, height, width).transpose(0, 1), sigma)


def _truncated_gaussian(x: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of uint8, truncated to uint8; the small term keeps integers from falling below themselves."""
    if int(4 * sigma + 0.5) == 0:
        return x
    return gaussian_filter(x.to(torch.float32), sigma).add_(1e-4).clamp_(max=255).to(torch.int32).to(torch.uint8)


def shuffled_pixels(draws: Draws, height: int, width: int, reach: int, rounds: int) -> Tensor:
    """int32 [N·H·W]: for each pixel, the position in the batch whose value it has after all rounds of the shuffle.

    The reference goes over the pixels from the bottom right to the top left and copies to each the value of a
    neighbour drawn at random within d pixels. (What looks like a swap there is a copy, because both sides are views of
    one array.) A neighbour q of p that comes later in memory has been visited before and gives its new value; one that
    comes earlier, or p itself, gives its old value:

        new[p] = new[q]  if q > p,   old[q]  otherwise;   new[p] = old[p] on the border, which is not visited.

    So each pixel is the start of a chain of copies that ends at an old value. Following all chains by pointer doubling
    takes log₂(longest chain) steps instead of one step per pixel. The chains have 2n nodes: p < n stands for the new
    value of pixel p, n + p for its old value, which points to itself.
    """
    count = len(draws) * height * width
    pointer = torch.arange(2 * count, dtype=torch.int32, device=draws.device)
    spare = pointer.clone()
    old = spare[count:].view(-1, height, width)
    visited = slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1)
    source: Tensor | None = None
    for _ in range(rounds):
        new = pointer[:count].view(old.shape).copy_(old)
        offset = _neighbour_offsets(draws, height, width, reach)
        new[:, visited[0], visited[1]].add_(offset).sub_(offset.gt(0).to(torch.int32), alpha=count)
        while int(pointer[:count].amin()) < count:
            torch.index_select(pointer, 0, pointer[:count], out=spare[:count])
            pointer, spare = spare, pointer
        end = pointer[:count] - count
        source = end if source is None else source.index_select(0, end)
    assert source is not None
    return source


def _neighbour_offsets(draws: Draws, height: int, width: int, reach: int) -> Tensor:
    """int32 [N, H − 2d, W − 2d]: the distance in memory to the neighbour that is drawn, dy·W + dx.

    dy and dx are uniform in −d … d − 1, each from 16 bits of one word, with a bias of at most 2d/2¹⁶.
    """
    span = 2 * reach
    words = draws.bits(height - span, width - span)
    down = words.bitwise_and(0xFFFF).mul_(span).bitwise_right_shift_(16)
    right = words.bitwise_right_shift_(16).bitwise_and_(0xFFFF).mul_(span).bitwise_right_shift_(16)
    return right.add_(down, alpha=width).sub_(reach * (width + 1))
