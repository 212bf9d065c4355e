"""Moments as operators, which torch.compile keeps whole.

Inductor's own reductions over a batch are slow on a GPU. A compiled graph calls these in their place, and makes one
kernel of what follows: the strategy, the normalisation, the activation and the residual. Batch sizes may be symbols, so
that a graph need not be compiled again for another one. Gradients and exported graphs use plain operations.
"""

from __future__ import annotations

import torch
from torch import Tensor


def is_dense(x: Tensor) -> bool:
    """Whether x, [N, C, …], lies in memory without gaps, in channels_last or not."""
    if x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)):
        return True
    return x.movedim(1, -1).is_contiguous()


@torch.library.custom_op("predbn::moments", mutates_args=())
def moments(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel of x, [N, C, …], in each of `groups` groups, [groups, C] each."""
    from .sums import moments as run

    return run(x if is_dense(x) else x.contiguous(), groups)


@moments.register_fake
def _(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    shape = groups, x.shape[1]
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.float32)


@torch.library.custom_op("predbn::bounded_moments", mutates_args=())
def bounded_moments(
    x: Tensor, groups: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor
) -> tuple[Tensor, Tensor]:
    """The tables of `statistics` without a rule, [6, groups, C], and how many examples are finite, [groups, 1].

    The influence of each example is bounded, as in `robust_moments`.
    """
    from .sums import sums, tiling_of

    x = x if is_dense(x) else x.contiguous()
    is_bad = torch.zeros(len(x), dtype=torch.int32, device=x.device)
    tiling = tiling_of(x, len(x))
    found = sums(x, tiling, is_bad)
    tables = tables_of_examples(found, is_bad, groups, tiling.rows, eps, limit, clean_var, scatter)
    count = (is_bad == 0).unflatten(0, (groups, -1)).sum(1, keepdim=True)
    return tables, count.float()


def tables_of_examples(
    found: Tensor, is_bad: Tensor, groups: int, rows: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor
) -> Tensor:
    """The tables of `statistics`, [6, groups, C], from the sums of each example over `rows` values."""
    from .rules import Bounds
    from .statistics import statistics

    bounds = Bounds(limit, clean_var.float(), scatter.float(), None)
    return statistics(found, len(is_bad) // groups, rows, eps, None, bounds, is_bad)[0]


@bounded_moments.register_fake
def _(x: Tensor, groups: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor) -> tuple[Tensor, Tensor]:
    shapes = (6, groups, x.shape[1]), (groups, 1)
    tables, count = (x.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return tables, count
