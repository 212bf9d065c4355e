"""Measurements, compared with scipy and closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from predbn.paper.claims import Verdict
from predbn.paper.measurements import gain, rank_correlation, share
from predbn.paper.series import Series

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


def test_the_rank_correlation_is_scipys_and_its_interval_resamples_whole_corruptions():
    """With ties."""
    random = np.random.default_rng(1)
    keys = [(f"c{number}", severity) for number in range(6) for severity in range(4)]
    splits = pd.DataFrame(keys, columns=["corruption", "severity"])
    splits["divergence"] = random.integers(0, 6, size=24).astype(float)
    splits["value"] = splits["divergence"] + random.integers(0, 4, size=24)
    measured = rank_correlation("x", splits.sample(frac=1, random_state=0), side="above", seed=3).interval
    assert measured.estimate == pytest.approx(spearmanr(splits["divergence"], splits["value"]).statistic)
    parts = [part for _, part in splits.groupby("corruption")]
    resamples = [
        pd.concat([parts[number] for number in drawn])
        for drawn in np.random.default_rng(3).integers(6, size=(2_000, 6))
    ]
    slow = [np.corrcoef(each["divergence"].rank(), each["value"].rank())[0, 1] for each in resamples]
    assert (measured.low, measured.high) == pytest.approx(np.nanquantile(slow, [0.025, 0.975]))
