"""`auto_stream` for the streams of a batch on a CPU, in NumPy: `gpu/stream_past.py` is the same for a GPU.

A layer needs about two hundred operations on small arrays, which take longer to start than to run; NumPy starts one in
a third of the time that PyTorch takes. What a layer remembers is read and written where it is, in the rows of the
streams (`stream_table.py`). The equations are those of `strategies/auto_stream.py`, `strategies/stream_past.py` and
`strategies/auto.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .gpu.rules import PAST_KEYS, Past, StateColumns
from .statistics import Statistics
from .strategies.auto import LIMITS
from .strategies.stream_past import HEAVY_TAILS, MOST_EVIDENCE, MOST_FREEDOM

Array: TypeAlias = NDArray[Any]


class _Estimate(NamedTuple):
    """Mean and variance, [S, C] each, and Σ w and Σ w² of the examples behind them, [S, 1] each."""

    mean: Array
    var: Array
    total: Array
    squares: Array


class _Clean(NamedTuple):
    """A calibration. `scale` is σ_c² + eps, and the weights h are a column, [C, 1]."""

    mean: Array
    scale: Array
    weight: Array
    eps: float
    between: float


class _Columns:
    """What the streams remember of a layer, by key: views of the columns of a matrix."""

    def __init__(self, columns: StateColumns, channels: int) -> None:
        self._matrix: Array = columns.matrix.numpy()
        self._starts = dict(zip(PAST_KEYS, columns.offsets.tolist(), strict=True))
        self._channels = channels

    def __getitem__(self, key: str) -> Array:
        return self.part(key, self._channels)

    def part(self, key: str, width: int) -> Array:
        start = self._starts[key]
        return self._matrix[:, start : start + width]


def follow(rule: Past, batch: Statistics, size: Tensor, eps: float) -> Statistics:
    """The statistics to normalise with, [S, C], from those of S batches of so many examples, [S, 1].

    Also writes what the streams remember from now on.
    """
    with np.errstate(all="ignore"):  # a stream that is not finite is found when states are kept
        mean, var = _follow(rule, batch.mean.numpy(), batch.var.numpy(), size.numpy().astype(np.float32), eps)
    return Statistics(torch.from_numpy(mean), torch.from_numpy(var))


def _follow(rule: Past, mean: Array, var: Array, n: Array, eps: float) -> tuple[Array, Array]:
    channels = mean.shape[1]
    weight = rule.clean.weight.numpy()[:, None]
    clean = _Clean(rule.clean.mean.numpy(), rule.clean.var.numpy() + eps, weight, eps, rule.clean.between)
    states = _Columns(rule.states, channels)
    errors = states.part("class_errors", 3) if rule.is_expected else None
    past: _Estimate | None = None
    if rule.has_past:
        past = _Estimate(states["seen_mean"], states["seen_var"], *np.split(states.part("counts", 2), 2, 1))
    if rule.has_last:
        past = _combined(past, _last_batch(rule, states, errors, clean), clean, rule.momentum)
    new = _Estimate(mean, var, n, n)
    if rule.has_classes:
        new = _as_expected(rule, states, errors, mean, var, n, clean)
    combined = _combined(past, new, clean, rule.momentum)
    doubt = 0.0 if errors is None else errors[:, 2:]
    used = _mixture(rule, combined, doubt, clean)
    if not rule.has_classes:
        past = combined
    results = _Columns(rule.results, channels)
    results["mean"][:], results["var"][:] = used
    if rule.has_classes:
        results["new_mean"][:], results["new_var"][:], results.part("new_size", 1)[:] = mean, var, n
    if past is not None and (rule.has_last or not rule.has_classes):
        counts = results.part("counts", 2)
        results["seen_mean"][:], results["seen_var"][:], counts[:, :1], counts[:, 1:] = past
    return used


def _last_batch(rule: Past, states: _Columns, errors: Array | None, clean: _Clean) -> _Estimate:
    """The batch before, corrected for the classes that were predicted, or expected."""
    mean, var, n = states["new_mean"], states["new_var"], states.part("new_size", 1)
    if not rule.has_shares:
        return _as_expected(rule, states, errors, mean, var, n, clean)
    assert errors is not None
    mean, var = _with_source_classes(rule, states, "new_shares", mean, var, clean)
    return _sized(mean, var, n, errors[:, :1], clean)


def _as_expected(
    rule: Past, states: _Columns, errors: Array | None, mean: Array, var: Array, n: Array, clean: _Clean
) -> _Estimate:
    """A batch corrected for the classes that are expected. The first one may hold any."""
    if errors is None:
        return _sized(mean, var, n, 1 / n if rule.has_last else 1.0, clean)
    mean, var = _with_source_classes(rule, states, "expected", mean, var, clean)
    return _sized(mean, var, n, np.maximum(errors[:, 1:2], 1 / n), clean)


def _sized(mean: Array, var: Array, n: Array, error: Array | float, clean: _Clean) -> _Estimate:
    size = 1 / ((1 - clean.between) / n + clean.between * error)
    return _Estimate(mean, var, size, size)


def _with_source_classes(
    rule: Past, states: _Columns, key: str, mean: Array, var: Array, clean: _Clean
) -> tuple[Array, Array]:
    """`Calibration.with_source_classes`."""
    means, squares = rule.clean.class_means, rule.clean.class_squares
    assert means is not None
    assert squares is not None
    shares = states.part(key, len(means))
    class_mean, class_var = shares @ means.numpy(), shares @ squares.numpy()
    class_var -= class_mean * class_mean
    np.maximum(class_var, 0, out=class_var)
    class_var += clean.eps
    class_mean -= clean.mean
    new_var = var + clean.eps
    new_var *= clean.scale / class_var
    new_var -= clean.eps
    return mean - class_mean, np.maximum(new_var, 0, out=new_var)


def _combined(past: _Estimate | None, new: _Estimate, clean: _Clean, momentum: float) -> _Estimate:
    """`combine` of `strategies/stream_past.py`."""
    if past is None:
        return new
    delta, growth = new.mean - past.mean, new.var - past.var
    delta2 = delta * delta
    size = new.total
    both = _pooled_var(past.var, growth, delta2, size / (past.total + size))
    both += clean.eps
    chance = 1 / size + past.squares / (past.total * past.total)
    z2 = delta2 / both
    r = growth / both
    r += z2
    r *= r
    r *= 0.5
    r += z2
    q = _clip(r @ clean.weight / chance, 1.0, LIMITS[1])
    freedom = MOST_FREEDOM / (1 + HEAVY_TAILS * chance)
    ratio = np.exp(np.minimum(freedom / 2 * (q - 1 - np.log(q)), MOST_EVIDENCE))
    kept = (1 - momentum) / (1 - momentum + momentum * ratio)
    total = kept * past.total
    share = size / (total + size)
    var = _pooled_var(past.var, growth, delta2, share)
    delta *= share
    delta += past.mean
    return _Estimate(delta, var, total + size, kept * kept * past.squares + new.squares)


def _pooled_var(var: Array, growth: Array, delta2: Array, share: Array) -> Array:
    pooled = growth * share
    pooled += var
    pooled += share * (1 - share) * delta2
    return pooled


def _mixture(rule: Past, batch: _Estimate, doubt: Array | float, clean: _Clean) -> tuple[Array, Array]:
    """`mixture` of `strategies/auto.py`."""
    n = batch.total * batch.total / batch.squares
    sampling = 1 / n + (1 / rule.clean.size) + rule.doubt * doubt
    network = rule.network / (n + 1)
    between_class = rule.skew * (1 - 1 / n) if rule.skew else 0.0
    delta = batch.mean - clean.mean
    z2 = delta * delta
    z2 /= clean.scale
    r = batch.var + clean.eps
    r /= clean.scale
    r += z2
    log_r = np.log(r)
    total = float(clean.weight.sum())
    ell = log_r @ clean.weight / total
    ell2 = _clip(ell * ell, *LIMITS)
    log_r *= log_r
    omega = _clip(log_r @ clean.weight / total / ell2 - 1, *LIMITS)
    d = _clip(total / 2 * ell2 - between_class, *LIMITS)
    a2 = np.exp(np.minimum(ell / (1 + _source_ratio(sampling / d) + network * omega), 0))
    growth = r / a2
    growth -= 1
    growth *= growth
    growth *= 0.5
    growth += z2 / a2
    d = _clip(growth @ clean.weight - between_class, *LIMITS)
    k = 1 / (1 + _source_ratio(sampling / d) + network)
    e = _clip(d - sampling, *LIMITS)
    f = 1 - k * e / (e + rule.clean.offset)
    z2 *= k
    r -= z2
    r *= k
    r += a2 * (1 - k)  # g
    source_mean, source_var = (t.numpy() for t in rule.source)
    delta *= 1 - (1 - k) * np.sqrt(a2)
    delta += clean.mean
    delta += f * np.sqrt(r) * (source_mean - clean.mean)
    var = f * (source_var + clean.eps - clean.scale)
    var += clean.scale
    var *= r
    var -= clean.eps
    return delta, np.maximum(var, 0, out=var)


def _source_ratio(s: Array) -> Array:
    ratio: Array = s * (1 + s) ** 2
    return ratio


def _clip(values: Array, least: float, most: float) -> Array:
    return np.minimum(np.maximum(values, least), most)
