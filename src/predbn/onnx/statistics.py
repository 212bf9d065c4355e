"""The strategies as nodes: the statistics that a layer normalises with.

`batch`, `prior`, `ema` and `frozen` are those of `predbn.norm`. `auto` is one pass: steps 1 to 4 of the equations in
the docstring of the module of `predbn.norm.Auto`, with the same symbols. Tests compare all with PyTorch.
"""

from __future__ import annotations

from typing import NamedTuple

from predbn.norm import MIN_CHANCE, Calibration, Ema, Frozen, auto_equations

from .moments import Clipping, Moments, Statistics
from .nodes import Array, Expression
from .state import LayerState

_CHANNELS = [1]


class CleanData(NamedTuple):
    """A `Calibration` as initialisers, or its replacement from the batch."""

    mean: Expression
    var: Expression
    weight: Expression
    size: int
    network: float
    offset: float
    relative_chance: Expression | float = 1.0


def mix(a: Statistics, b: Statistics, weight: Expression | float) -> Statistics:
    return Statistics(*(old + weight * (new - old) for old, new in zip(a, b, strict=True)))


def average(strategy: Ema, batch: Moments, source: Statistics, state: LayerState) -> Statistics:
    is_first, old = state.batches < 0.5, Statistics(state.read(), state.read())
    weight: Expression | float = strategy.momentum
    if strategy.start == "first":
        weight = is_first.where(1.0, weight)
    else:
        old = Statistics(*(is_first.where(start, part) for start, part in zip(source, old, strict=True)))
    new = mix(old, batch.statistics, weight)
    state.write(*new)
    return new


def pooled(strategy: Frozen, batch: Moments, state: LayerState) -> Statistics:
    is_collecting = state.batches < strategy.batches - 0.5
    old, values = Statistics(state.read(), state.read()), state.read_number()
    total = values + batch.n * batch.positions
    weight, delta = 1 - values / total, batch.mean - old.mean
    mean, var = mix(old, batch.statistics, weight)
    new = Statistics(mean, var + weight * (1 - weight) * delta * delta)
    new = Statistics(*(is_collecting.where(part, before) for part, before in zip(new, old, strict=True)))
    state.write(*new, is_collecting.where(total, values))
    return new


def load_calibration(calibration: Calibration, like: Expression, shape: tuple[int, ...]) -> tuple[CleanData, Clipping]:
    """The initialisers of a calibrated layer."""

    def constant(name: str, values: Array) -> Expression:
        return like.writer.constant(f"calibration/{name}", values.reshape(shape))

    mean, var, weight = (
        constant(name, getattr(calibration, name).double().numpy()) for name in ("mean", "var", "weight")
    )
    clean = CleanData(mean, var, weight, calibration.size, calibration.network, calibration.offset)
    if calibration.clipping is None:
        return clean, Clipping()
    offset, within, between = calibration.clipping.double()
    return clean, Clipping(
        constant("scatter", calibration.scatter.double().numpy()),  # type: ignore[union-attr]
        constant("clipping_offset", offset.numpy()),
        constant("log_clipping_within", within.log().numpy()),
        constant("log_clipping_between", between.log().numpy()),
    )


def mixture(batch: Moments, clean: CleanData, source: Statistics, eps: float) -> Statistics:
    sampling = 1 / batch.n + 1 / clean.size
    network = auto_equations.NETWORK_FACTOR * clean.network**2 / (batch.n + 1)
    scale = clean.var + eps
    delta = batch.mean - clean.mean
    z2 = delta * delta / scale
    r = z2 + (batch.var + eps) / scale
    growth = r - 1
    d = _clamp((clean.weight * (z2 + growth * growth / 2)).sum(_CHANNELS))
    s = sampling / d
    k = 1 / (1 + s * (1 + s) * (1 + s) * clean.relative_chance + network)
    e = _clamp(d - sampling)
    f = 1 - k * e / (e + clean.offset)
    g = 1 - k + k * (r - k * z2)
    mixed_mean = clean.mean + k * delta
    mean = mixed_mean + f * g.sqrt() * (source.mean - clean.mean)
    var = g * (clean.var + f * (source.var - clean.var) + eps) - eps
    return Statistics(mean, var.at_least(0))


def _clamp(value: Expression) -> Expression:
    low, high = auto_equations.LIMITS
    return value.at_least(low).at_most(high)


def clean_from_batch(batch: Moments, source: Statistics, eps: float, layer_count: int) -> CleanData:
    """The replacement of a calibration, as `auto` without calibration estimates it from the batch."""
    assert batch.between is not None
    n = batch.n
    variance = batch.between * (n / (n - 1).at_least(1))
    chance = 2 * variance / (batch.var + eps) * ((n + 1) / (n - 1).at_least(1))
    chance = (n < 1.5).where(2.0, chance).at_least(MIN_CHANCE)
    weight = 1 / (chance + chance.mean(_CHANNELS))
    weight = weight / (weight * chance).sum(_CHANNELS)
    network = auto_equations.DEFAULT_CHANCE * layer_count
    relative = chance * weight.sum(_CHANNELS)
    return CleanData(*source, weight, auto_equations.STORED_SIZE, network, 0.0, relative)
