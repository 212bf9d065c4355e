"""Measurements, compared with scipy and closed forms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from predbn.paper import Series, Verdict
from predbn.paper.measurements import gain, share
from predbn.paper.rank_correlation import _correlations, rank_correlation

TRAIN, BATCH = Series("train BN", "methods", "train"), Series("prediction BN", "methods", "batch")


def test_a_gain_is_positive_if_it_is_better(as_the_paper):
    higher, lower = (gain(as_the_paper, BATCH, TRAIN, metric) for metric in ("accuracy", "ece"))
    assert higher.interval.low > 0
    assert lower.interval.low > 0
    back = gain(as_the_paper, TRAIN, BATCH, "ece")
    assert back.interval.estimate == pytest.approx(-lower.interval.estimate)


def test_a_share_is_a_ratio_of_means():
    part, whole = pd.Series([1.8, 2.0, 2.2]), pd.Series([18.0, 20.0, 22.0])
    found = share("x", part, whole, side="below", bound=0.2)
    assert (found.interval.estimate, found.interval.low, found.interval.high) == pytest.approx((0.1, 0.1, 0.1))
    assert found.verdict is Verdict.HOLDS


def test_there_is_no_share_of_an_unclear_whole():
    found = share("x", pd.Series([1.0, 1.0, 1.0]), pd.Series([-5.0, 0.1, 5.0]), side="below", bound=0.2)
    assert found.verdict is Verdict.UNCLEAR
    assert found.bounds == "no interval"


def test_the_rank_correlation_is_scipys():
    random = np.random.default_rng(0)
    kinds = [f"c{n}" for n in range(19) for _ in range(5)]
    splits = pd.DataFrame({"corruption": kinds, "divergence": random.normal(size=95)})
    splits["value"] = splits["divergence"] ** 3 + 0.2 * random.normal(size=95)
    found = rank_correlation("x", splits, side="above")
    assert found.interval.estimate == pytest.approx(spearmanr(splits["divergence"], splits["value"]).statistic)
    assert found.interval.low < found.interval.estimate < found.interval.high


def test_its_interval_resamples_whole_corruptions():
    """With unequal numbers of splits per corruption, and ties."""
    random = np.random.default_rng(1)
    kinds = np.array([f"c{n}" for n in range(6) for _ in range(1 + n % 4)])
    splits = pd.DataFrame({"corruption": kinds, "divergence": random.integers(0, 6, size=len(kinds)).astype(float)})
    splits["value"] = splits["divergence"] + random.integers(0, 4, size=len(kinds))
    generator = np.random.default_rng(0)
    drawn = [generator.integers(6, size=6) for _ in range(2_000)]
    parts = [splits[kinds == f"c{number}"] for number in range(6)]
    again = [pd.concat([parts[number] for number in which]) for which in drawn[:400]]
    slow = [spearmanr(each["divergence"], each["value"]).statistic for each in again]
    x, y = splits["divergence"].to_numpy(), splits["value"].to_numpy()
    times = np.array([[np.sum(which == int(kind[1:])) for kind in kinds] for which in drawn], dtype=float)
    assert _correlations(x, y, times[:400]) == pytest.approx(slow, abs=1e-12, nan_ok=True)
    found = rank_correlation("x", splits, side="above").interval
    assert (found.low, found.high) == pytest.approx(np.nanquantile(_correlations(x, y, times), [0.025, 0.975]))
