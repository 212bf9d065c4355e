"""Moments in which no single example has much influence.

One outlier among a hundred examples moves mean and variance of the whole batch. For each example i let m_i and v_i be
mean and variance of its values in a channel, and μ, σ² the statistics of clean data. Its distance is

    D_i = mean over the channels of  z_i² + (r_i − 1)²/2,    z_i² = (m_i − μ)²/σ²,    r_i = v_i/σ² + z_i².

An example that is more than three times as far away as the median one is weighted down to where its distance counts
no more than that:

    w_i = min(1, 3·median(D)/D_i),    and w_i = 0 if it is not finite.

A shift moves all examples, and with them the median: then all weights stay 1 and nothing is lost.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .statistics import Statistics

_LIMIT = 3.0


def robust_statistics(
    mean: Tensor, var: Tensor, clean: Statistics, eps: float, group: int | None = None
) -> tuple[Statistics, Tensor]:
    """The statistics of a batch from those of its examples, [N, C] each; also which examples are finite, [N].

    With a `group` there is one row for every so many examples.
    """
    offset, scale = mean - clean.mean, clean.var + eps
    z2 = offset * offset / scale
    distance = (z2 + 0.5 * ((var + eps) / scale + z2 - 1) ** 2).mean(1)
    is_finite = distance.isfinite()
    groups = _in_groups(distance.masked_fill(~is_finite, torch.nan), group)
    limit = _LIMIT * groups.nanmedian(1, keepdim=True).values
    weight = (limit / groups).clamp(max=1).nan_to_num(0.0)[..., None]
    weight = weight / weight.sum(1, keepdim=True)
    # Zeros in place of values that are not finite: zero times infinity would not be zero.
    offset, var = (_in_groups(torch.where(is_finite[:, None], t, 0), group) for t in (offset, var))
    centre = (weight * offset).sum(1)
    pooled = (weight * (var + (offset - centre[:, None]) ** 2)).sum(1)
    result = clean.mean + centre, pooled
    return Statistics(*(result if group is not None else (t[0] for t in result))), is_finite


def _in_groups(values: Tensor, group: int | None) -> Tensor:
    """[N, …] as [G, n, …]; a batch without groups is a single one."""
    return values[None] if group is None else values.unflatten(0, (-1, group))
