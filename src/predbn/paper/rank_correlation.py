"""Spearman's rank correlation over splits, with an interval that resamples whole corruptions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.metrics import Interval

from .claims import Measurement, Side
from .measurements import LEVEL

_RESAMPLES = 2_000
Array = npt.NDArray[np.float64]


def rank_correlation(what: str, splits: pd.DataFrame, *, side: Side, bound: float = 0.0, seed: int = 0) -> Measurement:
    """Spearman's rank correlation of the columns `divergence` and `value` over splits.

    The interval is a percentile bootstrap that draws whole corruptions with replacement, because the severities of one
    corruption are not independent.
    """
    kinds, kind = np.unique(splits["corruption"].to_numpy(), return_inverse=True)
    x, y = splits["divergence"].to_numpy(), splits["value"].to_numpy()
    drawn = np.random.default_rng(seed).integers(len(kinds), size=(_RESAMPLES, len(kinds)))
    # A resample is described by how often each split is in it, so that all resamples are computed at once.
    counts = np.stack([np.bincount(which, minlength=len(kinds)) for which in drawn])[:, kind].astype(float)
    low, high = np.nanquantile(_correlations(x, y, counts), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    estimate = float(_correlations(x, y, np.ones((1, len(x))))[0])
    interval = Interval(estimate, float(low), float(high), LEVEL)
    return Measurement(what, interval, side, bound, len(kinds), "corruptions", digits=2)


def _correlations(x: Array, y: Array, counts: Array) -> Array:
    """Spearman's rank correlations of the points (x_i, y_i) with point i taken counts[r, i] times.

    NaN if all x or all y are equal.
    """
    total = counts.sum(1, keepdims=True)
    a, b = (_ranks(values, counts) - (total + 1) / 2 for values in (x, y))
    with np.errstate(invalid="ignore"):
        correlations: Array = (counts * a * b).sum(1) / np.sqrt((counts * a * a).sum(1) * (counts * b * b).sum(1))
    return correlations


def _ranks(values: Array, counts: Array) -> Array:
    """The rank of each value if value j occurs counts[r, j] times; equal values share the mean of their ranks.

    rank_i = Σ_j counts_j [v_j < v_i] + (1 + Σ_j counts_j [v_j = v_i]) / 2
    """
    below, equal = values[:, None] < values, values[:, None] == values
    ranks: Array = counts @ (below + 0.5 * equal) + 0.5
    return ranks
