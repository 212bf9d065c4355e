"""The mCE of results against the formula, and its interval against one made of the images' own values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from predbn.evaluation import Results
from predbn.evaluation.mce import RESAMPLES, mce_by_image
from predbn.metrics import ALEXNET_ERRORS, bootstrap_mean
from predbn.shifts import names

IMAGES = 37
KEY = {"model": "m", "method": "vanilla", "batch_size": 10, "order": "shuffled", "seed": 0}


def made(corruptions, *, keep=True, benchmark="ImageNet"):
    random = np.random.default_rng(0)
    rows, hits, errors = [], [], {}
    for strategy, share in (("train", 0.4), ("batch", 0.7)):
        for corruption in corruptions:
            for severity in range(1, 6):
                right = random.random(IMAGES) < share
                key = {**KEY, "strategy": strategy, "corruption": corruption, "severity": severity}
                rows.append({**key, "metric": "accuracy", "value": right.mean()})
                rows.append({**key, "metric": "ece", "value": 0.1})
                hits.append({**key, "hits": np.packbits(right).tobytes()})
                errors[strategy, corruption, severity] = 1 - right
    card = {"data": {"images": IMAGES, "benchmark": benchmark}}
    kept = pd.DataFrame(hits if keep else [])
    return Results(pd.DataFrame(rows), pd.DataFrame(columns=[*KEY, "strategy"]), card=card, hits=kept), errors


def test_it_is_the_published_formula_and_its_interval_is_over_images():
    results, errors = made(names("all"))
    table = results.mce().set_index("strategy")
    assert list(table.index) == ["train", "batch"]
    for strategy in table.index:
        by_image = np.zeros(IMAGES)
        for corruption, alexnet in ALEXNET_ERRORS.items():
            five = [errors[strategy, corruption, severity] for severity in range(1, 6)]
            by_image += 100 / 15 * np.mean(five, axis=0) / alexnet
        assert table.loc[strategy, "mce"] == pytest.approx(by_image.mean())
        wanted = bootstrap_mean(by_image, resamples=RESAMPLES)
        assert table.loc[strategy, "low"] == pytest.approx(wanted.low)
        assert table.loc[strategy, "high"] == pytest.approx(wanted.high)
        hits = results.hits[results.hits["strategy"] == strategy]
        assert np.allclose(mce_by_image(hits, IMAGES), by_image)


def test_without_hits_there_is_no_interval():
    table = made(names("standard"), keep=False)[0].mce()
    assert len(table) == 2
    assert table[["low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize(("corruptions", "benchmark"), [(names("standard")[1:], "ImageNet"), (names("all"), "flowers")])
def test_what_has_no_mce_has_none(corruptions, benchmark):
    assert made(corruptions, benchmark=benchmark)[0].mce().empty


def test_a_part_of_the_results_has_its_part_of_the_hits():
    results = made(names("standard"))[0].filter(strategy="batch")
    assert set(results.hits["strategy"]) == {"batch"}
    assert len(results.mce()) == 1
