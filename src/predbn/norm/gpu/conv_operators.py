"""Convolutions with their neighbours as operators, which take the place of several nodes in a compiled graph.

Those of 1×1 convolutions take x [N, K, H, W], weight [C, K, 1, 1], the stride, and optionally `scale` and `shift`, [K]
each, and whether there is a ReLU: x is then normalised first. `site` is the number under which the chosen way is kept.
Those that give moments also take what these are mixed with (`mixed_moments.py`), and return what `mixed_moments` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .operators import BOUNDS, MIXED_ROWS, MIXING, bounded_moments_of_examples, contiguous, operator

_ARGUMENTS = "Tensor x, Tensor weight, int stride, Tensor? scale, Tensor? shift, bool relu, int site"


def _run(
    x: Tensor, weight: Tensor, stride: int, scale: Tensor | None, shift: Tensor | None, relu: bool, site: int,
    wanted: int,
) -> tuple[Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    from .conv import Prologue
    from .conv_choice import convolve

    prologue = None
    if scale is not None and shift is not None:
        prologue = Prologue(scale.contiguous(), shift.contiguous(), relu)
    return convolve(x, weight, stride, prologue, wanted, site)


def convolved_shape(
    x: Sequence[int],
    weight: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
) -> tuple[int, ...]:
    """The shape of a convolution from those of its input and weight."""
    sizes = zip(x[2:], weight[2:], stride, padding, dilation, strict=True)
    return x[0], weight[0], *((size + 2 * p - d * (kernel - 1) - 1) // s + 1 for size, kernel, s, p, d in sizes)


def _new_output(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    shape = convolved_shape(x.shape, weight.shape, (stride, stride))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def _empty_conv(x, weight, stride, scale, shift, relu, site):  # type: ignore[no-untyped-def]
    return _new_output(x, weight, stride)


@operator(f"conv({_ARGUMENTS}) -> Tensor", _empty_conv)
def conv(
    x: Tensor, weight: Tensor, stride: int, scale: Tensor | None, shift: Tensor | None, relu: bool, site: int
) -> Tensor:
    """The convolution alone; useful if its input is normalised."""
    return _run(x, weight, stride, scale, shift, relu, site, 0)[0]


def _mixing(
    reference_mean: Tensor | None, reference_var: Tensor | None, share: float | None, source_size: float,
    norm_weight: Tensor | None, norm_bias: Tensor | None, eps: float,
) -> Any:  # fmt: skip
    from .mixed_moments import Mixing

    mean, var, weight, bias = contiguous(reference_mean, reference_var, norm_weight, norm_bias)
    return Mixing(mean, var, share, source_size, weight, bias, eps)


def _empty_conv_moments(x, weight, stride, scale, shift, relu, site, *mixing):  # type: ignore[no-untyped-def]
    return _new_output(x, weight, stride), x.new_empty((MIXED_ROWS, weight.shape[0]), dtype=torch.float32)


@operator(f"conv_moments({_ARGUMENTS}, {MIXING}) -> (Tensor, Tensor)", _empty_conv_moments)
def conv_moments(
    x: Tensor, weight: Tensor, stride: int, scale: Tensor | None, shift: Tensor | None, relu: bool, site: int,
    *mixing: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The convolution, and what `mixed_moments` returns for its output, [6, C]."""
    from .mixed_moments import mixed_moments_from

    y, sums, _ = _run(x, weight, stride, scale, shift, relu, site, 1)
    assert sums is not None
    return y, mixed_moments_from(sums, y.numel() // y.shape[1], len(y), _mixing(*mixing))


def _empty_conv_example_sums(x, weight, stride, scale, shift, relu, site):  # type: ignore[no-untyped-def]
    sums = x.new_empty((x.shape[0], 1, 3, weight.shape[0]), dtype=torch.float32)
    return _new_output(x, weight, stride), sums, x.new_empty(x.shape[0], dtype=torch.int32)


@operator(f"conv_example_sums({_ARGUMENTS}) -> (Tensor, Tensor, Tensor)", _empty_conv_example_sums)
def conv_example_sums(
    x: Tensor, weight: Tensor, stride: int, scale: Tensor | None, shift: Tensor | None, relu: bool, site: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The convolution, the sums of each example of its output, [N, 1, 3, C], and which are not finite, [N]."""
    y, *found = _run(x, weight, stride, scale, shift, relu, site, 2)
    return y, *found  # type: ignore[return-value]


def _empty_any_conv_moments(
    x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int], site: int, *mixing: Any
) -> tuple[Tensor, Tensor]:
    shape = convolved_shape(x.shape, weight.shape, stride, padding, dilation)
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    return y, x.new_empty((MIXED_ROWS, weight.shape[0]), dtype=torch.float32)


@operator(
    f"any_conv_moments(Tensor x, Tensor weight, int[] stride, int[] padding, int[] dilation, int site, {MIXING})"
    " -> (Tensor, Tensor)",
    _empty_any_conv_moments,
)
def any_conv_moments(
    x: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int], site: int, *mixing: Any
) -> tuple[Tensor, Tensor]:
    """The same for any convolution, by a kernel of cuDNN."""
    from .conv_cudnn import new_geometry, with_moments

    return with_moments(x, weight, new_geometry(stride, padding, dilation), _mixing(*mixing), site)


def _empty_tables_of_sums(sums: Tensor, is_bad: Tensor, groups: int, *arguments: Any) -> tuple[Tensor, Tensor]:
    return sums.new_empty((6, groups, sums.shape[3])), sums.new_empty((groups, 1))


@operator(
    f"bounded_moments_of_sums(Tensor sums, Tensor is_bad, {BOUNDS}, SymInt rows) -> (Tensor, Tensor)",
    _empty_tables_of_sums,
)
def bounded_moments_of_sums(
    sums: Tensor, is_bad: Tensor, groups: int, eps: float, limit: float, clean_var: Tensor, scatter: Tensor,
    clipping: Tensor | None, evenness: Tensor | None, rows: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The results of `bounded_moments` from the sums of each example over `rows` values."""
    return bounded_moments_of_examples(sums, is_bad, groups, rows, eps, limit, clean_var, scatter, clipping, evenness)
