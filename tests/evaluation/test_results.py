import itertools
import zlib

import numpy as np
import pandas as pd
import pytest

from predbn.evaluation import BOOTSTRAP_RESAMPLES, EvaluationError, Results, compare, mce_by_image
from predbn.evaluation.tables import KEYS
from predbn.metrics import ALEXNET_ERRORS, bootstrap_difference, bootstrap_mean, paired_interval
from predbn.shifts import names

CORRUPTIONS = [f"c{k}" for k in range(6)]


def value(model, strategy, corruption, severity, metric):
    return (
        (zlib.crc32(f"{model}{corruption}{severity}".encode()) % 97) / 200
        + (0.1 if strategy == "batch" else 0)
        + len(metric) / 100
    )


def made(strategies=("train", "batch"), models=("m/0", "m/1")):
    splits = [("clean", 0), *itertools.product(CORRUPTIONS, (1, 5))]
    rows = [
        {"model": m, "method": "vanilla", "strategy": s, "corruption": c, "severity": v, "batch_size": 10,
         "order": "shuffled", "seed": 0, "metric": x, "value": value(m, s, c, v, x)}
        for m in models for s in strategies for c, v in splits for x in ("accuracy", "nll")
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    reliability = frame[frame["metric"] == "nll"].drop(columns=["metric", "value"])
    return Results(frame, reliability)


def test_filter_selects_rows_in_both_tables():
    found = made().filter(strategy="batch", severity=[1, 5], model="m/*", metric="nll")
    assert len(found.frame) == 2 * 12
    assert len(found.reliability) == 2 * 12
    assert set(found.frame["strategy"]) == {"batch"}
    with pytest.raises(EvaluationError, match="no result has strategy frozen: there are train, batch"):
        made().filter(strategy="frozen")
    with pytest.raises(EvaluationError, match="no key 'stratgy'"):
        made().filter(stratgy="batch")


def test_quartiles_are_numpys():
    summary = made().by_severity().set_index(["model", "strategy", "metric", "severity"])
    row = summary.loc["m/1", "batch", "nll", 5]
    values = [value("m/1", "batch", c, 5, "nll") for c in CORRUPTIONS]
    np.testing.assert_allclose(
        row[["min", "q1", "median", "q3", "max"]].to_numpy(float), np.percentile(values, [0, 25, 50, 75, 100])
    )
    assert row["mean"] == pytest.approx(np.mean(values))
    assert row["corruptions"] == 6
    assert summary.loc["m/1", "batch", "nll", 0]["corruptions"] == 1


def test_two_parts_are_compared_split_by_split():
    results = made()
    found = compare(results.filter(strategy="batch"), results.filter(strategy="train")).set_index(
        ["metric", "severity"]
    )
    assert found["difference"].to_numpy() == pytest.approx(0.1)
    assert found.loc["nll", "all"]["splits"] == 12
    assert np.isnan(found.loc["nll", "0"]["low"])
    sides = [
        [np.mean([value(m, "batch", c, 5, "nll") for m in models]) for c in CORRUPTIONS]
        for models in (("m/0",), ("m/1",))
    ]
    found = compare(
        results.filter(strategy="batch", model="m/0"), results.filter(strategy="batch", model="m/1")
    ).set_index(["metric", "severity"])
    interval = bootstrap_difference(*sides)
    row = found.loc["nll", "5"]
    assert (row["difference"], row["low"], row["high"]) == pytest.approx(
        (interval.estimate, interval.low, interval.high)
    )


def test_comparing_results_without_common_rows_is_an_error():
    results = made()
    with pytest.raises(EvaluationError, match="no row in common"):
        compare(results.filter(severity=1), results.filter(severity=5, corruption="c1", model="m/0"))


IMAGES = 37
MCE_KEY = {"model": "m", "method": "vanilla", "batch_size": 10, "order": "shuffled", "seed": 0}


def imagenet_results(corruptions, *, keep=True, benchmark="ImageNet"):
    random = np.random.default_rng(0)
    rows, hits, errors = [], [], {}
    for strategy, share in (("train", 0.4), ("batch", 0.7)):
        for corruption in corruptions:
            for severity in range(1, 6):
                right = random.random(IMAGES) < share
                key = {**MCE_KEY, "strategy": strategy, "corruption": corruption, "severity": severity}
                rows.append({**key, "metric": "accuracy", "value": right.mean()})
                rows.append({**key, "metric": "ece", "value": 0.1})
                hits.append({**key, "hits": np.packbits(right).tobytes()})
                errors[strategy, corruption, severity] = 1 - right
    card = {"data": {"images": IMAGES, "benchmark": benchmark}}
    kept = pd.DataFrame(hits if keep else [])
    return Results(pd.DataFrame(rows), pd.DataFrame(columns=[*MCE_KEY, "strategy"]), card=card, hits=kept), errors


def test_the_mce_is_the_published_formula_and_its_interval_is_over_images():
    results, errors = imagenet_results(names("all"))
    table = results.mce().set_index("strategy")
    assert list(table.index) == ["train", "batch"]
    for strategy in table.index:
        by_image = np.zeros(IMAGES)
        for corruption, alexnet in ALEXNET_ERRORS.items():
            five = [errors[strategy, corruption, severity] for severity in range(1, 6)]
            by_image += 100 / 15 * np.mean(five, axis=0) / alexnet
        assert table.loc[strategy, "mce"] == pytest.approx(by_image.mean())
        wanted = bootstrap_mean(by_image, resamples=BOOTSTRAP_RESAMPLES)
        assert table.loc[strategy, "low"] == pytest.approx(wanted.low)
        assert table.loc[strategy, "high"] == pytest.approx(wanted.high)
        hits = results.hits[results.hits["strategy"] == strategy]
        assert np.allclose(mce_by_image(hits, IMAGES), by_image)


@pytest.mark.parametrize(("corruptions", "benchmark"), [(names("standard")[1:], "ImageNet"), (names("all"), "flowers")])
def test_other_data_or_missing_corruptions_have_no_mce(corruptions, benchmark):
    assert imagenet_results(corruptions, benchmark=benchmark)[0].mce().empty


def test_filtering_results_filters_their_hits():
    results = imagenet_results(names("standard"))[0].filter(strategy="batch")
    assert set(results.hits["strategy"]) == {"batch"}
    assert len(results.mce()) == 1


def test_strategies_that_both_runs_have_are_compared_one_by_one():
    both = [*accuracies_of("train", 0.5), *accuracies_of("batch", 0.7)]
    better = [*accuracies_of("train", 0.5), *accuracies_of("batch", 0.9)]
    table = compare(*(Results(pd.DataFrame(rows), pd.DataFrame()) for rows in (better, both)))
    clean = table[table["severity"] == "0"].set_index("strategy")["difference"]
    assert clean.to_dict() == pytest.approx({"train": 0.0, "batch": 0.2})


def test_one_split_has_an_interval_over_images_if_hits_were_kept():
    card = {"data": {"images": 40, "sha256": {"images": "x"}}}
    sides, right = [], {"train": np.arange(40) < 10, "batch": np.arange(40) < 30}
    for strategy, correct in right.items():
        rows = accuracies_of(strategy, correct.mean())[:1]
        kept = [{**{key: rows[0][key] for key in KEYS}, "hits": np.packbits(correct).tobytes()}]
        sides.append(Results(pd.DataFrame(rows), pd.DataFrame(), card=card, hits=pd.DataFrame(kept)))
    (row,) = compare(sides[1], sides[0]).to_dict("records")
    expected = paired_interval(right["batch"].astype(float), right["train"].astype(float))
    assert row["over"] == "images"
    assert (row["difference"], row["low"], row["high"]) == pytest.approx((0.5, expected.low, expected.high))


def accuracies_of(strategy: str, value: float) -> list[dict]:
    """Accuracies on clean data and under fog."""
    shared = {"model": "m", "method": "vanilla", "strategy": strategy, "batch_size": 10, "order": "shuffled", "seed": 0}
    splits = [("clean", 0), ("fog", 1), ("fog", 5)]
    return [
        {**shared, "corruption": name, "severity": severity, "metric": "accuracy", "value": value}
        for name, severity in splits
    ]
