"""Intervals of means against resampling by hand, and what they are over."""

import numpy as np
import pandas as pd
import pytest

from predbn.metrics import bootstrap_mean
from predbn.report.frames import check_results
from predbn.report.intervals import hits_by_image, interval_note, mean_intervals

KEYS = {"method": "vanilla", "batch_size": 100, "order": "shuffled", "seed": 0}
IMAGES = 50


def accuracies(models: int = 1, corruptions: tuple[str, ...] = ("fog", "snow")) -> pd.DataFrame:
    rows = [
        {**KEYS, "model": f"m/{model}", "strategy": "train", "corruption": corruption, "severity": severity}
        for model in range(models)
        for corruption, severity in [("clean", 0), *((name, 3) for name in corruptions)]
    ]
    random = np.random.default_rng(0)
    hits = [np.packbits(random.random(IMAGES) < 0.7).tobytes() for _ in rows]
    values = [np.unpackbits(np.frombuffer(packed, np.uint8), count=IMAGES).mean() for packed in hits]
    return pd.DataFrame(rows).assign(hits=hits, metric="accuracy", value=values)


def split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The results and the hits of the same cells."""
    return check_results(frame.drop(columns="hits")), frame.drop(columns=["metric", "value"])


def test_hits_give_intervals_over_images():
    frame = accuracies()
    intervals = mean_intervals(*split(frame), images=IMAGES).set_index("severity")
    assert set(intervals["over"]) == {"images"}
    fog_and_snow = [np.unpackbits(np.frombuffer(packed, np.uint8), count=IMAGES) for packed in frame["hits"][1:]]
    expected = bootstrap_mean(np.mean(fog_and_snow, axis=0), resamples=50_000, seed=1)
    assert intervals.loc[3, "mean"] == pytest.approx(expected.estimate)
    assert (intervals.loc[3, "low"], intervals.loc[3, "high"]) == pytest.approx((expected.low, expected.high), abs=0.02)
    assert interval_note(intervals.reset_index()).endswith("bootstrap interval, over the images.")


def test_without_hits_they_are_over_the_corruptions_and_on_clean_data_over_networks():
    results, _ = split(accuracies(models=3))
    intervals = mean_intervals(results)
    assert dict(zip(intervals["severity"], intervals["over"], strict=True)) == {0: "networks", 3: "corruptions"}
    assert interval_note(intervals).endswith("over the corruptions (on clean data networks).")


def test_one_split_of_one_network_has_no_interval():
    results, _ = split(accuracies(corruptions=("fog",)))
    intervals = mean_intervals(results)
    assert intervals["low"].isna().all()
    assert interval_note(intervals) == ""


def test_other_metrics_have_no_hits():
    frame = accuracies()
    results, hits = split(pd.concat([frame, frame.assign(metric="brier")]))
    intervals = mean_intervals(results, hits.drop_duplicates(["corruption"]), IMAGES)
    assert set(intervals[intervals["metric"] == "brier"]["over"]) == {"corruptions", ""}
    assert "over the images (accuracy) or corruptions (on clean data images)." in interval_note(intervals)


def test_a_stream_that_visits_images_twice():
    correct = np.array([[1, 1], [0, 1], [0, 0], *[[1, 0]] * 7], bool)
    assert hits_by_image(np.packbits(correct).tobytes(), 10) == pytest.approx(correct.mean(1))
