"""Moments as operators, which torch.compile keeps whole.

Inductor's own reductions over a batch are slow on a GPU. A compiled graph calls these in their place, and makes one
kernel of what follows: the normalisation, the activation and the residual. Batch sizes may be symbols, so
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


MIXING = (
    "Tensor? reference_mean, Tensor? reference_var, float? share, float source_size, Tensor? norm_weight, "
    "Tensor? norm_bias, float eps"
)
"""What `Mixing` of `mixed_moments.py` has."""
MIXED_ROWS = 6
"""What `mixed_moments` returns: mean and variance of the batch, those of the mixture, scale and shift."""


def _empty_mixed_moments(x: Tensor, *mixing: Any) -> Tensor:
    return x.new_empty((MIXED_ROWS, x.shape[1]), dtype=torch.float32)


@operator(f"mixed_moments(Tensor x, {MIXING}) -> Tensor", _empty_mixed_moments)
def mixed_moments(
    x: Tensor, reference_mean: Tensor | None, reference_var: Tensor | None, share: float | None, source_size: float,
    norm_weight: Tensor | None, norm_bias: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    """Moments of the batch, those of the mixture, scale and shift, [6, C]: see `mixed_moments.py`."""
    x = x if is_dense(x) else x.contiguous()
    inputs = x, *contiguous(reference_mean, reference_var, norm_weight, norm_bias)
    found: Tensor = _prepared_mixed_moments()(inputs, ((MIXED_ROWS, x.shape[1]),), share, source_size, eps)[0]
    return found


@cache
def _prepared_mixed_moments() -> Any:
    from .mixed_moments import Mixing
    from .mixed_moments import mixed_moments as run
    from .prepared_operator import PreparedOperator

    def run_operator(inputs: Any, outputs: Any, share: float | None, source_size: float, eps: float) -> None:
        x, mean, var, weight, bias = inputs
        run(x, Mixing(mean, var, share, source_size, weight, bias, eps), outputs[0])

    return PreparedOperator(run_operator)


def contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    """The same without gaps between their values."""
    return [t if t is None or t.is_contiguous() else t.contiguous() for t in tensors]


BOUNDS = "SymInt groups, float eps, float limit, Tensor clean_var, Tensor scatter, Tensor? clipping, Tensor? evenness"


def _empty_tables(
    x: Tensor, groups: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor, clipping: Tensor | None,
    evenness: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    shapes = (6, groups, x.shape[1]), (groups, 1)
    tables, count = (x.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return tables, count


@operator(f"bounded_moments(Tensor x, {BOUNDS}) -> (Tensor, Tensor)", _empty_tables)
def bounded_moments(
    x: Tensor, groups: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor, clipping: Tensor | None,
    evenness: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The tables of `statistics` without a rule, [6, groups, C], and how many examples are finite, [groups, 1].

    The influence of each example is bounded, as in `robust_moments`, and corrected for what that does to clean
    examples, as in `correct_clipping`.
    """
    x = x if is_dense(x) else x.contiguous()
    inputs = x, *_in_single_precision(clean_var, scatter, clipping, evenness)
    tables, count = _prepared_bounds()(inputs, ((6, groups, x.shape[1]), (groups, 1)), groups, eps, limit)
    return tables, count


def _in_single_precision(*tensors: Tensor | None) -> list[Tensor | None]:
    """Without a gap between their values."""
    return [
        t if t is None or (t.dtype == torch.float32 and t.is_contiguous()) else t.float().contiguous() for t in tensors
    ]


@cache
def _prepared_bounds() -> Any:
    from .launch import new_zeros
    from .prepared_operator import PreparedOperator
    from .sums import sums, tiling_of

    def run(inputs: Any, outputs: Any, groups: int, eps: float, limit: float) -> None:
        x, *bounds = inputs
        is_bad = new_zeros(len(x), x.device)
        tiling = tiling_of(x, len(x))
        found = sums(x, tiling, is_bad)
        _bounded(found, is_bad, groups, tiling.rows, eps, limit, *bounds, *outputs)

    return PreparedOperator(run)


def _bounded(
    found: Tensor, is_bad: Tensor, groups: int, rows: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor,
    clipping: Tensor | None, evenness: Tensor | None, tables: Tensor | None = None, count: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    from .rules import Bounds
    from .statistics import statistics

    bounds = Bounds(limit, clean_var, scatter, clipping, evenness)
    return statistics(found, len(is_bad) // groups, rows, eps, None, bounds, is_bad, out=tables, counts=count)


def bounded_moments_of_examples(
    found: Tensor, is_bad: Tensor, groups: int, rows: int, eps: float, limit: float, *bounds: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The results of `bounded_moments` from the sums of each example over `rows` values."""
    tables, count = _bounded(found, is_bad, groups, rows, eps, limit, *_in_single_precision(*bounds))  # type: ignore[arg-type]
    assert count is not None
    return tables, count


_MIXTURE = (
    "Tensor mean, Tensor var, Tensor? count, Tensor? chance_of_classes, Tensor clean_mean, Tensor clean_var, "
    "Tensor weight, Tensor source_mean, Tensor source_var, Tensor? norm_weight, Tensor? norm_bias, SymInt n, "
    "float eps, float offset, float per_example, float constant, float network, float skew"
)


def _empty_mixture(mean: Tensor, *arguments: Any) -> Tensor:
    return mean.new_empty((4, *mean.shape))


@operator(f"mixture({_MIXTURE}) -> Tensor", _empty_mixture)
def mixture(mean: Tensor, var: Tensor, *arguments: Any) -> Tensor:
    """Steps 1 to 5 of `auto`: mean, variance, scale and shift, [4, …], from the moments of the batch, [C] or
    [groups, C].

    count                    how many examples there are, [1] or [groups, 1]; None if they are n
    chance_of_classes        what classes add to chance, in the same shape; None for nothing
    norm_weight, norm_bias   those of the layer, [C]; None if it has none
    """
    inputs = *_in_single_precision(mean, var, *arguments[:5]), *contiguous(*arguments[5:9])
    found: Tensor = _prepared_mixture()(inputs, ((4, *mean.shape),), *arguments[9:])[0]
    return found


@cache
def _prepared_mixture() -> Any:
    from .mixture import mixture as run
    from .prepared_operator import PreparedOperator

    return PreparedOperator(run)


def _empty_pair(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    assert first.shape == second.shape
    assert first.dtype == second.dtype
    _tell_inductor()  # here, because it takes seconds to import Inductor, which a graph is about to do
    return torch.empty_like(first), torch.empty_like(second)


@operator("computed_once(Tensor first, Tensor second) -> (Tensor, Tensor)", _empty_pair)
def computed_once(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """The same values, [C] each. In a graph of Inductor they are computed before the kernel that normalises.

    Otherwise Inductor makes what a strategy computes for each channel a part of that kernel, which then computes it
    again for every value.
    """
    return first.clone(), second.clone()


def _apply_scale_and_shift(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    shape = [-1, *[1] * (x.dim() - 2)]
    return torch.addcmul(shift.view(shape), x.to(scale.dtype), scale.view(shape)).to(x.dtype)


_LIBRARY.define("scale_and_shift(Tensor x, Tensor scale, Tensor shift) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_LIBRARY.impl("scale_and_shift", _apply_scale_and_shift, "CompositeImplicitAutograd")


def scale_and_shift(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x·scale + shift for each channel, in the dtype of x.

    A graph of Dynamo shows it as one operation, which `fusion.py` looks for; Inductor gets what it is made of.
    """
    return torch.ops.predbn.scale_and_shift.default(x, scale, shift)  # type: ignore[no-any-return]


@cache
def _tell_inductor() -> None:
    """Let one kernel of Inductor write both to memory, if they are not there already; nothing is called."""
    try:
        from torch._inductor import ir
        from torch._inductor.lowering import lowerings, register_lowering
        from torch._inductor.virtualized import ops

        select, is_in_memory = lowerings[torch.ops.aten.select.int], ir.is_storage_and_layout
    except (ImportError, KeyError, AttributeError):
        return  # another version of PyTorch: the operator is called, which copies them

    def lower(first: Any, second: Any) -> list[Any]:
        if is_in_memory(first) and is_in_memory(second):
            return [first, second]
        load_first, load_second = first.make_loader(), second.make_loader()

        def load(index: Any) -> Any:
            is_first = ops.eq(ops.index_expr(index[0], torch.int32), ops.constant(0, torch.int32))
            return ops.where(is_first, load_first(index[1:]), load_second(index[1:]))

        both = ir.Pointwise.create(
            device=first.get_device(), dtype=first.get_dtype(), inner_fn=load, ranges=[2, *first.get_size()]
        )
        both.realize()
        return [select(both, 0, row) for row in range(2)]

    register_lowering(computed_once, type_promotion_kind=None)(lower)
