"""The moments of a layer's input as nodes.

Mean and variance are computed in two passes, with a correction of the rounding error of the mean. With a first mean μ₀:

    c = x − μ₀,    δ = mean(c),    μ = μ₀ + δ,    σ² = mean(c²) − δ².

With |μ|/σ = 1,000 a mean in single precision is off by 2·10⁻⁴ σ, and the correction makes that 10⁻⁷ σ as long as c, and
not x itself, is what is normalised. `robust_moments` is `predbn.norm.robust` in nodes; its equations are there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from predbn.norm import robust

from .nodes import Expression


class Statistics(NamedTuple):
    mean: Expression
    var: Expression


class Moments(NamedTuple):
    """Mean and variance of a batch of n examples, and the variance of the examples' means if it is known.

    `positions` is proportional to the number of values of an example.
    """

    mean: Expression
    var: Expression
    n: Expression
    between: Expression | None = None
    positions: Expression | float = 1.0

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.mean, self.var)


class Centred(NamedTuple):
    """A centred input, c = x − centre; `offset` is the rounding error δ of the centre."""

    values: Expression
    centre: Expression
    offset: Expression
    var: Expression

    @property
    def mean(self) -> Expression:
        return self.centre + self.offset


class Clipping(NamedTuple):
    """The calibration of clipping, [1, C, 1, 1] each: the scatter, b, log 1/w and log 1/u."""

    scatter: Expression | float = 1.0
    offset: Expression | None = None
    log_within: Expression | None = None
    log_between: Expression | None = None


def centre(x: Expression, axes: list[int]) -> Centred:
    """Subtract the mean over these axes: all but the channels, or the positions of each example."""
    mean = x.mean(axes)
    values = x - mean
    offset = values.mean(axes)
    return Centred(values, mean, offset, ((values * values).mean(axes) - offset * offset).at_least(0))


def count_examples(x: Expression) -> Expression:
    """n, the first dimension, as a number."""
    writer = x.writer
    shape = writer.op("Shape", x)
    return writer.op("Gather", shape, writer.integers(0), axis=0).cast(writer.dtype)


def count_positions(x: Expression) -> Expression:
    """How many values an example has, in all channels."""
    return x.writer.op("Size", x).cast(x.writer.dtype) / count_examples(x)


def robust_moments(
    mean: Expression, var: Expression, shape: tuple[int, ...], eps: float, clean_var: Expression, clipping: Clipping
) -> Moments:
    """The moments of a batch from those of its examples, [N, C, 1, 1] each, clipped and corrected.

    `shape` is that of the moments, (1, C, 1, 1); C is −1 if it is not known.
    """
    writer = mean.writer
    is_finite = _is_finite_example(mean, var)
    infinity = writer.number(float("inf"))  # is sorted last, and clipped to a finite number
    weight = is_finite.cast(writer.dtype)
    count = weight.sum([0])
    means = writer.op("Where", is_finite, mean, infinity)
    variances = writer.op("Where", is_finite, var + (eps + robust.TINY), infinity)
    low, middle, high = _quantiles(means, count, shape)
    low_var, middle_var, high_var = _quantiles(variances, count, shape)
    limit = robust.NARROW * (1 + robust.WIDER_FOR_FEW / count)
    scatter = clipping.scatter
    spread = ((high - low) / robust.GAUSSIAN).at_least(((clean_var + eps) * scatter).sqrt())
    min_log_spread = (2 * scatter).sqrt() if isinstance(scatter, Expression) else (2 * scatter) ** 0.5
    log_spread = ((high_var / low_var).log() / robust.GAUSSIAN).at_least(min_log_spread)
    step, factor = limit * spread, (limit * log_spread).exp()
    means = means.at_least(middle - step).at_most(middle + step)
    variances = variances.at_least(middle_var / factor).at_most(middle_var * factor)
    pooled = (weight * means).sum([0]) / count
    distance = means - pooled
    between = (weight * distance * distance).sum([0]) / count
    within = ((weight * variances).sum([0]) / count - (eps + robust.TINY)).at_least(0)
    if clipping.offset is None or clipping.log_within is None or clipping.log_between is None:
        return Moments(pooled, within + between, count, between)
    share = (-6.0 / count.at_least(1)).exp()
    corrected = within * (share * clipping.log_within).exp() + between * (share * clipping.log_between).exp()
    return Moments(pooled + share * clipping.offset * spread, corrected, count, between)


def _is_finite_example(mean: Expression, var: Expression) -> Expression:
    """Which examples are finite in all channels, [N, 1, 1, 1]."""
    writer = mean.writer
    both = mean + var  # the variance of an example that is not finite is not finite
    is_bad = writer.op("Or", writer.op("IsNaN", both), writer.op("IsInf", both))
    return writer.op("Less", is_bad.cast(writer.dtype).sum([1]), writer.number(0.5))


def _quantiles(values: Expression, count: Expression, shape: tuple[int, ...]) -> list[Expression]:
    """`QUANTILES` of each channel, [1, C, 1, 1] each; excluded values are infinite and come last.

    The shape is explicit because shape inference ends at TopK: without it, onnxruntime plans its memory for minutes.
    """
    writer = values.writer
    last = (count.reshape(1) - 1).at_least(0)
    position = last * writer.constant("quantiles", np.array(robust.QUANTILES))
    lower = position.floor()
    upper = (lower + 1).at_most(last)
    share = (position - lower).reshape(-1, *[1] * (len(shape) - 1))
    size = writer.op("Gather", writer.op("Shape", values), writer.integers(0), axis=0)
    ordered = writer.op("TopK", values, size, outputs=2, axis=0, largest=0, sorted=1)
    below, above = (
        writer.op("Gather", ordered, rows.cast(ir.DataType.INT64), axis=0).reshape(len(robust.QUANTILES), *shape[1:])
        for rows in (lower, upper)
    )
    quantiles = below + share * (above - below)
    return [writer.op("Gather", quantiles, writer.integers(i), axis=0) for i in range(len(robust.QUANTILES))]
