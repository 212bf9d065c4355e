"""Means and variances per channel: how they are mixed and pooled, and how far apart two of them are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Statistics(NamedTuple):
    """What a batch norm layer normalises with: y = weight · (x − mean) / √(var + eps) + bias.

    One value per channel, [C]; or [S, C] if the batch has S segments (`segments.py`). The variance is the biased one,
    Σ(x − mean)² / count.
    """

    mean: Tensor
    var: Tensor


class Moments(NamedTuple):
    """Statistics together with the number of values behind them, so that they can be pooled with others.

    `values` is the number of values per channel (examples × positions), `size` the number of examples. Both are
    tensors if several processes contributed, because reading them would force a synchronisation, and [S, 1] if the
    batch has S segments; mean and variance are then [S, C]. `between` is the part of the variance that lies between
    the means of the examples, where it is known.
    """

    mean: Tensor
    var: Tensor
    values: int | Tensor
    size: int | Tensor
    between: Tensor | None = None

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.mean, self.var)

    @property
    def n(self) -> int | Tensor:
        """`size` as a factor of statistics: that of several segments, [S, 1], in their dtype."""
        return self.size.to(self.mean.dtype) if isinstance(self.size, Tensor) and self.size.dim() else self.size


def mix(a: Statistics, b: Statistics, weight: float | Tensor) -> Statistics:
    """(1 − weight)·a + weight·b, for means and variances alike."""
    if type(weight) is float:
        return Statistics(torch.lerp(a.mean, b.mean, weight), torch.lerp(a.var, b.var, weight))
    if isinstance(weight, Tensor):
        weight = weight.to(a.mean.dtype)
    return Statistics(a.mean + weight * (b.mean - a.mean), a.var + weight * (b.var - a.var))


def pool(a: Moments, b: Moments) -> Moments:
    """The moments of the union of two sets of values, exactly."""
    values = a.values + b.values
    mean, var = pool_central_moments(a.statistics, b.statistics, b.values / values)
    return Moments(mean, var, values, a.size + b.size)


def pool_central_moments(
    a: tuple[Tensor, Tensor],
    b: tuple[Tensor, Tensor],
    weight: float | Tensor,
    product: Callable[[Tensor, Tensor], Tensor] = torch.mul,
) -> tuple[Tensor, Tensor]:
    """Mean and second central moments of the union of two sets (Chan, Golub and LeVeque 1979).

    `a` and `b` are such pairs, and w = `weight` is the share of the values that belong to b. With δ = mean_b − mean_a:

        mean = mean_a + w·δ,    second = (1 − w)·second_a + w·second_b + w·(1 − w)·product(δ, δ).

    The product is δ² for variances; give `torch.outer` for a covariance matrix, δ δᵀ.
    """
    (mean_a, second_a), (mean_b, second_b) = a, b
    delta = mean_b - mean_a
    second = second_a + weight * (second_b - second_a) + product(weight * (1 - weight) * delta, delta)
    return mean_a + weight * delta, second


def pool_over_processes(local: Moments, process_group: Any = None) -> Moments:
    """The moments of the batch that is spread over the processes of a group, however unevenly.

    The rule of `pool_central_moments` for any number of sets at once: with w_r = values_r / Σ values,

        mean = Σ w_r·mean_r,    var = Σ w_r·(var_r + (mean_r − mean)²).

    Every process of the group must call it, even with an empty share; if all are empty, the moments are NaN. Gradients
    are those of the sum of the losses of all processes, as with SyncBatchNorm: every process must then also run
    backward.
    """
    channels = local.mean.numel()
    counts = torch.tensor([local.values, local.size], dtype=torch.float64, device=local.mean.device)
    rows = _gather(torch.cat([counts, local.mean.double(), local.var.double()]), process_group)
    values, size = rows[:, 0].sum(), rows[:, 1].sum()
    weight = rows[:, :1] / values
    means, variances = rows[:, 2:].split(channels, dim=1)
    mean = (weight * means).sum(0)
    var = (weight * (variances + (means - mean) ** 2)).sum(0)
    dtype = local.mean.dtype
    return Moments(mean.to(dtype), var.to(dtype), values, size)


def gather_examples(values: Tensor, process_group: Any = None) -> Tensor:
    """The examples of all processes of a group, [N₁ + N₂ + …, C], from those of each, [Nᵣ, C]. Gradients as above.

    Every process must know how many examples the others have, for which it waits for its device.
    """
    count = torch.tensor([float(len(values))], device=values.device)
    counts = [int(c) for c in _gather(count, process_group)[:, 0].tolist()]
    padding = values.new_zeros(max(counts) - len(values), values.shape[1])
    rows = _gather(torch.cat([values, padding]).flatten(), process_group).unflatten(1, (-1, values.shape[1]))
    return torch.cat([row[:size] for row, size in zip(rows, counts, strict=True)])


def _gather(row: Tensor, process_group: Any) -> Tensor:
    if torch.compiler.is_dynamo_compiling():
        return torch.compiler.disable(_Gather.apply)(row, process_group)  # type: ignore[no-any-return]
    return _Gather.apply(row, process_group)  # type: ignore[no-any-return, no-untyped-call]


class _Gather(torch.autograd.Function):
    """One row from each process."""

    @staticmethod
    def forward(ctx: Any, row: Tensor, process_group: Any) -> Tensor:
        ctx.process_group = process_group
        rows = [torch.empty_like(row) for _ in range(dist.get_world_size(process_group))]
        dist.all_gather(rows, row.contiguous(), group=process_group)
        return torch.stack(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient, group=ctx.process_group)
        return gradient[dist.get_rank(ctx.process_group)], None


def distance(batch: Statistics, source: Statistics, eps: float) -> float:
    """How far a batch's statistics are from the source statistics, in source standard deviations.

    The 2-Wasserstein distance between the two Gaussians of each channel, relative to the source's spread, as root mean
    square over the channels:

        √ mean_c [ ((μ_b − μ_s)² + (σ_b − σ_s)²) / (σ_s² + eps) ].

    It is 0 if nothing has shifted, and 1 if a typical channel is off by a whole standard deviation.
    """
    mean_b, var_b = (t.detach().double().cpu() for t in batch)
    mean_s, var_s = (t.detach().double().cpu() for t in source)
    squared = (mean_b - mean_s) ** 2 + (var_b.clamp(min=0).sqrt() - var_s.clamp(min=0).sqrt()) ** 2
    return float((squared / (var_s + eps)).mean().sqrt())
