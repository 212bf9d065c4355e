"""Which way to compute a 1×1 convolution with its neighbours is the fastest, measured when a shape is first seen.

A convolution may have sums to give, and an input to normalise. Both may happen in its kernel, with tiles of several
sizes; the input may be normalised by a kernel of its own; and all three may be separate, which is what a network that
is not fused does. So a fused layer is not slower than a separate one. Ways are measured for each shape and device, and
for batch sizes up to the next power of two; never while a CUDA graph is recorded.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from ..kernels import IS_INTERPRETED, is_being_captured
from .conv import BATCH, NO_SUMS, Config, Prologue, apply_prologue, conv_with_sums
from .sums import moments_from, sums, tiling_of
from .timing import microseconds

_CONFIGS = (
    Config(128, 64, 64, 4, 3),
    Config(64, 64, 64, 4, 4),
    Config(128, 128, 64, 4, 3),
    Config(128, 128, 64, 8, 3),
    Config(64, 128, 64, 4, 3),
    Config(128, 256, 64, 8, 3),
)
_LEAST_TILE = 16

Result = tuple[Tensor, Tensor | None, Tensor | None]


class Way(NamedTuple):
    """How a convolution is computed.

    config           the tiles of our kernel; None for PyTorch's convolution and separate sums
    is_normalised    whether the input is normalised in the kernel of the convolution
    is_cudnn         whether the sums come from a kernel of cuDNN (`conv_cudnn.py`)
    """

    config: Config | None = None
    is_normalised: bool = False
    is_cudnn: bool = False

    @property
    def has_sums(self) -> bool:
        """Whether sums come out of the kernel of the convolution."""
        return self.config is not None or self.is_cudnn


SEPARATE, CUDNN = Way(), Way(is_cudnn=True)


@dataclass
class Site:
    """A convolution in a compiled network, and the way that was chosen for it; None before it was called."""

    way: Way | None = None


SITES: list[Site] = []
"""All convolutions that compiled networks may fuse."""


@dataclass
class Forced:
    """For tests: "fused", "separate" or "cudnn" takes this way without a measurement."""

    way: str | None = "fused" if IS_INTERPRETED else None


FORCED = Forced()
_chosen: dict[Any, Way] = {}
_lock = threading.Lock()


def new_site() -> int:
    """The number of a new site."""
    SITES.append(Site())
    return len(SITES) - 1


def convolve(x: Tensor, weight: Tensor, stride: int, prologue: Prologue | None, wanted: int, site: int = -1) -> Result:
    """A 1×1 convolution of x, [N, K, H, W]: its output, and what is wanted of it.

    For `BATCH` the sums of each channel, [1, pieces, 3, C]; for `EXAMPLES` those of each example, [N, 1, 3, C], and
    which examples are not finite, [N].
    """
    x, weight = x.contiguous(memory_format=torch.channels_last), weight.contiguous()
    way = choose(x, weight, stride, prologue, wanted)
    if 0 <= site < len(SITES):
        SITES[site].way = way
    return run(way, x, weight, stride, prologue, wanted)


def run(way: Way, x: Tensor, weight: Tensor, stride: int, prologue: Prologue | None, wanted: int) -> Result:
    """`convolve` in one way, for x in channels_last."""
    if prologue is not None and not way.is_normalised:
        x, prologue = apply_prologue(x, prologue), None
    if way.config is None:
        return _separate(x, weight, stride, wanted)
    return conv_with_sums(x, weight, stride, prologue, wanted, way.config)


def _separate(x: Tensor, weight: Tensor, stride: int, wanted: int) -> Result:
    y = F.conv2d(x, weight, stride=stride).contiguous(memory_format=torch.channels_last)
    if wanted == NO_SUMS:
        return y, None, None
    if wanted == BATCH:
        return y, sums(y, tiling_of(y, 1)), None
    is_bad = torch.zeros(len(y), dtype=torch.int32, device=y.device)
    found = sums(y, tiling_of(y, len(y)), is_bad)
    if found.shape[1] > 1:  # all pieces are about the same pilot
        found = torch.cat([found[:, :, :2].sum(1), found[:, 0, 2:]], 1)[:, None]
    return y, found, is_bad


def choose(x: Tensor, weight: Tensor, stride: int, prologue: Prologue | None, wanted: int) -> Way:
    """The fastest way for this shape, which is measured once; the separate one while a CUDA graph is recorded."""
    if FORCED.way is not None:
        return SEPARATE if FORCED.way == "separate" else ways_of(weight, prologue)[0]
    relu = None if prologue is None else prologue.relu
    size = (len(x) - 1).bit_length()
    key = x.device, x.dtype, size, x.shape[1:], weight.shape[0], stride, relu, wanted
    way = _chosen.get(key)
    if way is not None:
        return way
    if is_being_captured(x):
        return SEPARATE
    with _lock:
        way = _chosen.get(key)
        if way is None:
            way = _chosen[key] = fastest(x, weight, stride, prologue, wanted)
    return way


def ways_of(weight: Tensor, prologue: Prologue | None) -> list[Way]:
    """The ways that may be the fastest; the last one is the separate one."""
    channels, depth = weight.shape[:2]
    most, deepest = (max(_LEAST_TILE, triton.next_power_of_2(size)) for size in (channels, depth))
    configs: list[Config] = []
    for config in _CONFIGS:
        fitting = config._replace(columns=min(config.columns, most), depth=min(config.depth, deepest))
        if fitting not in configs and (config.columns <= most or config.columns == _CONFIGS[0].columns):
            configs.append(fitting)
    ways = [Way(config, prologue is not None) for config in configs]
    if prologue is not None:
        ways += [Way(config) for config in configs[:3]]
    return [*ways, SEPARATE]


def fastest(
    x: Tensor, weight: Tensor, stride: int, prologue: Prologue | None, wanted: int, *, with_separate: bool = True
) -> Way:
    """Time all ways. One that cannot be built on this GPU, for which its tiles may be too large, is left out."""
    ways = ways_of(weight, prologue)[: None if with_separate else -1]
    times = {way: time_of(way, x, weight, stride, prologue, wanted) for way in ways}
    return min(times, key=times.__getitem__)


def time_of(way: Way, x: Tensor, weight: Tensor, stride: int, prologue: Prologue | None, wanted: int) -> float:
    """How long one way takes on the GPU in microseconds, with the moments if they are wanted; infinite if it cannot be
    built."""

    def call() -> None:
        y, found, _ = run(way, x, weight, stride, prologue, wanted)
        if wanted == BATCH:
            assert found is not None
            moments_from(found, y.numel() // y.shape[1])

    try:
        call()
    except Exception:  # Triton raises many kinds
        if way == SEPARATE:
            raise
        return float("inf")
    return microseconds(call)
