"""The classes of streams after a batch, in one kernel: the equations of `norm/stream_classes.py`.

As operations of PyTorch they are thirty, each of which takes the host longer than the GPU. One program has all classes
of a stream.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton.language as tl
from torch import Tensor

from .launch import kernel, power_of_2

MOST_CLASSES = 4096
"""How many classes, or groups of classes, a stream may have."""


@kernel()
def _classes(
    shares, doubt, sizes, before, expected, sums, new_shares, new_expected, new_errors, new_sums,
    classes, stride_of_shares, stride_of_doubt, stride_of_before, stride_of_expected, stride_of_sums,
    momentum, prior_persistence, prior_error, least,
    CLASSES: tl.constexpr,
):  # fmt: skip
    stream = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, CLASSES)
    valid = k < classes
    size = tl.load(sizes + k, mask=valid, other=0.0).to(tl.float32)
    source = size / tl.maximum(tl.sum(size, 0), 1.0)
    step = tl.load(shares + stream * stride_of_shares + k, mask=valid, other=0.0) - source
    step_before = tl.load(before + stream * stride_of_before + k, mask=valid, other=0.0) - source
    miss = step + source - tl.load(expected + stream * stride_of_expected + k, mask=valid, other=0.0)
    u = tl.load(doubt + stream * stride_of_doubt)
    distance = tl.sum(step * step, 0)
    unsure = u * u
    believed = source + tl.maximum(1 - unsure / tl.maximum(distance, least), 0.0) * step
    kept = 1 - momentum
    old = sums + stream * stride_of_sums
    above = kept * tl.load(old) + tl.sum(step * step_before, 0)
    below = kept * tl.load(old + 1) + tl.sum(step_before * step_before, 0)
    misses = kept * tl.load(old + 2) + tl.sum(miss * miss, 0)
    doubts = kept * tl.load(old + 3) + u
    weights = kept * tl.load(old + 4) + 1
    persistence = tl.minimum(tl.maximum(above / (below + prior_persistence), 0.0), 1.0)
    tl.store(new_shares + stream * classes + k, believed, mask=valid)
    tl.store(new_expected + stream * classes + k, source + persistence * (believed - source), mask=valid)
    tl.store(new_errors + stream * 3, tl.minimum(unsure, distance))
    tl.store(new_errors + stream * 3 + 1, (misses + prior_error) / (weights + prior_error))
    tl.store(new_errors + stream * 3 + 2, doubts / weights)
    place = new_sums + stream * 5
    tl.store(place, above)
    tl.store(place + 1, below)
    tl.store(place + 2, misses)
    tl.store(place + 3, doubts)
    tl.store(place + 4, weights)


def classes_after(
    shares: Tensor,
    doubt: Tensor,
    sizes: Tensor,
    state: tuple[Tensor, Tensor, Tensor],
    momentum: float,
    priors: tuple[float, float],
    least: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `StreamClasses` holds after a batch, from the shares of its classes, [K] or [S, K], and their doubt.

    state    shares, expected shares and sums before it, of each stream or the same for all
    priors   `_PRIOR_PERSISTENCE` and `_PRIOR_ERROR`
    """
    streams, classes = shares.shape[:-1].numel(), shares.shape[-1]
    rows = [t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous() for t in (shares, doubt, *state)]
    strides = [t.stride(0) if t.dim() == 2 and t.shape[0] > 1 else 0 for t in rows]
    new = [shares.new_empty((*shares.shape[:-1], width)) for width in (classes, classes, 3, 5)]
    _classes(
        (streams, 1, 1),
        (*rows[:2], sizes.contiguous(), *rows[2:], *new),
        (classes, *strides),
        (momentum, *priors, least),
        (power_of_2(classes),),
    )
    return tuple(new)
