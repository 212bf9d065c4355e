import itertools
import zlib

import numpy as np
import pandas as pd
import pytest

from predbn.evaluation import EvaluationError, Results, compare
from predbn.metrics import bootstrap_difference

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


def test_rows_are_selected_in_both_tables():
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


def test_means_are_over_the_shifted_splits():
    row = made().means().set_index(["model", "strategy", "metric"]).loc["m/0", "train", "accuracy"]
    values = [value("m/0", "train", c, v, "accuracy") for c in CORRUPTIONS for v in (1, 5)]
    assert row["shifted"] == pytest.approx(np.mean(values))
    assert row["clean"] == pytest.approx(value("m/0", "train", "clean", 0, "accuracy"))
    assert row["splits"] == 12


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


def test_what_has_nothing_in_common_is_not_compared():
    results = made()
    with pytest.raises(EvaluationError, match="no row in common"):
        compare(results.filter(severity=1), results.filter(severity=5, corruption="c1", model="m/0"))


def test_a_frame_is_handed_out_as_a_copy():
    results = made()
    copied = results.to_pandas()
    copied["value"] = 0.0
    assert results.frame["value"].abs().sum() > 0
