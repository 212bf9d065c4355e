"""Moments as operators, which torch.compile keeps whole.

Inductor's own reductions over a batch are slow on a GPU. A compiled graph calls these in their place, and makes one
kernel of what follows: the strategy, the normalisation, the activation and the residual. Batch sizes may be symbols, so
that a graph need not be compiled again for another one. Gradients and exported graphs use plain operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("predbn", "FRAGMENT")


def operator(schema: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Register a function as an operator; `fake` makes empty results of the same shapes, for graphs.

    It is called directly. What torch.library.custom_op does around each call (it looks for aliases, and for gradients)
    takes longer than most of these kernels, and a compiled network calls one for every layer.
    """
    name = schema.partition("(")[0]

    def register(function: Callable[..., Any]) -> Any:
        _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"predbn::{name}", fake, lib=_LIBRARY)
        return getattr(torch.ops.predbn, name).default

    return register


def is_dense(x: Tensor) -> bool:
    """Whether x, [N, C, …], lies in memory without gaps, in channels_last or not."""
    if x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)):
        return True
    return x.movedim(1, -1).is_contiguous()


def _empty_moments(x: Tensor, groups: int) -> Tensor:
    return x.new_empty((2, groups, x.shape[1]), dtype=torch.float32)


@operator("moments(Tensor x, SymInt groups) -> Tensor", _empty_moments)
def moments(x: Tensor, groups: int) -> Tensor:
    """Mean and biased variance of each channel of x, [N, C, …], in each of `groups` groups, [2, groups, C]."""
    x = x if is_dense(x) else x.contiguous()
    found: Tensor = _prepared_moments()((x,), ((2, groups, x.shape[1]),), groups)[0]
    return found


@cache
def _prepared_moments() -> Any:
    from .prepared_operator import PreparedOperator
    from .sums import moments as run

    return PreparedOperator(lambda inputs, outputs, groups: run(inputs[0], groups, outputs[0]))


def _empty_tables(
    x: Tensor, groups: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor
) -> tuple[Tensor, Tensor]:
    shapes = (6, groups, x.shape[1]), (groups, 1)
    tables, count = (x.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return tables, count


@operator(
    "bounded_moments(Tensor x, SymInt groups, float eps, float limit, Tensor clean_var, Tensor scatter)"
    " -> (Tensor, Tensor)",
    _empty_tables,
)
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


def _empty_statistics(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    _tell_inductor()  # here, because it takes seconds to import Inductor, which a graph is about to do
    return torch.empty_like(mean), torch.empty_like(var)


@operator("computed_once(Tensor mean, Tensor var) -> (Tensor, Tensor)", _empty_statistics)
def computed_once(mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
    """The same statistics, [C] each. In a graph of Inductor they are computed before the kernel that normalises.

    Otherwise Inductor makes what a strategy computes for each channel a part of that kernel, which then computes it
    again for every value.
    """
    return mean.clone(), var.clone()


@cache
def _tell_inductor() -> None:
    """Let one kernel of Inductor write both to memory, if they are not there already; nothing is called."""
    try:
        from torch._inductor import ir
        from torch._inductor.lowering import lowerings, register_lowering
        from torch._inductor.virtualized import ops

        select = lowerings[torch.ops.aten.select.int]
    except (ImportError, KeyError):  # another version of PyTorch: the operator is called, which copies them
        return

    def lower(mean: Any, var: Any) -> list[Any]:
        if all(ir.is_storage_and_layout(each) for each in (mean, var)):
            return [mean, var]
        load_mean, load_var = mean.make_loader(), var.make_loader()

        def load(index: Any) -> Any:
            is_mean = ops.eq(ops.index_expr(index[0], torch.int32), ops.constant(0, torch.int32))
            return ops.where(is_mean, load_mean(index[1:]), load_var(index[1:]))

        both = ir.Pointwise.create(
            device=mean.get_device(), dtype=mean.get_dtype(), inner_fn=load, ranges=[2, *mean.get_size()]
        )
        both.realize()
        return [select(both, 0, row) for row in range(2)]

    register_lowering(computed_once, type_promotion_kind=None)(lower)
