"""Tidy frames: which are refused, how rows are grouped and ordered, and gains against a plain loop."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.common import ReportError
from predbn.report import frames
from predbn.report.frames import gain_over_baseline
from predbn.shifts import names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns=["value", "severity"]), "it lacks severity, value"),
        (lambda frame: frame[:0], "has no rows: run the evaluation first"),
        (lambda frame: pd.concat([frame, frame[:2]]), r"has 2 duplicate rows, the first is .*'method': 'vanilla'"),
    ],
)
def test_wrong_frames_are_refused(frame, change, message):
    with pytest.raises(ReportError, match=message):
        frames.check_results(change(frame))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"metric": "mse"}, "one of the metrics accuracy, brier, ece, but got 'mse'"),
        ({}, {"strategy": "ema"}, "both 'train' and 'ema' for method 'vanilla', but its strategies are batch, train"),
        ({"metric": "confidence"}, {"metric": "confidence"}, "neither higher nor lower 'confidence' is better"),
    ],
)
def test_gains_that_do_not_exist_are_refused(frame, change, options, message):
    with pytest.raises(ReportError, match=message):
        gain_over_baseline(frame.assign(**change), **{"metric": "accuracy", **options})


def test_columns_may_be_categories(frame):
    columns = ["model", "method", "strategy", "corruption", "order", "metric"]
    same = frames.add_series(frames.check_results(frame.astype(dict.fromkeys(columns, "category"))))
    pd.testing.assert_series_equal(same["series"], frames.add_series(frames.check_results(frame))["series"])


def test_trainings_of_one_network_are_one_setting_and_are_averaged(frame):
    again = frame.assign(model="zoo:resnet20-cifar10/batch/1", value=frame["value"] + 0.5)
    both = frames.check_results(pd.concat([frame, again]))
    assert list(frames.split_by_setting(both)) == [""]
    mean = frames.mean_values(frames.rows_of_metric(both, "accuracy"))
    single = frames.mean_values(frames.rows_of_metric(frames.check_results(frame), "accuracy"))
    assert mean["value"].to_numpy() == pytest.approx(single["value"].to_numpy() + 0.25)


def test_what_differs_within_a_series_makes_settings_and_longer_names(frame):
    both = frames.check_results(pd.concat([frame, frame.assign(batch_size=10, order="sorted")]))
    assert list(frames.split_by_setting(both)) == ["batch size 10, order sorted", "batch size 500, order shuffled"]
    assert "vanilla · train · batch size 10, order sorted" in set(frames.add_series(both)["series"])
    frame.loc[frame["method"] == "ensemble", "model"] = "zoo:resnet20-cifar10/batch/*"  # differs between methods only
    assert list(frames.split_by_setting(frames.check_results(frame))) == [""]


def test_a_report_is_about_batches_that_are_not_attacked(frame):
    attacked = frame.assign(batch_size=1000, order="attacked:targeted")
    both = frames.check_results(pd.concat([frame, attacked]))
    assert frames.main_setting(frames.split_by_setting(both)) == "batch size 500, order shuffled"
    assert frames.attacks(both) == ["attacked:targeted"]
    assert frames.attacks(frame) == []


def test_series_are_named_after_what_differs_in_the_order_of_methods_and_strategies(frame):
    shuffled = frames.check_results(frame.sample(frac=1, random_state=0))
    assert list(frames.list_series(shuffled)["series"]) == [
        f"{method} · {strategy}" for method in ("vanilla", "temperature", "ensemble") for strategy in ("train", "batch")
    ]
    one_method = frames.check_results(frame[frame["method"] == "ensemble"])
    assert list(frames.list_series(one_method)["series"]) == ["train", "batch"]


@given(st.permutations(names("all")))
def test_families_keep_the_published_order_whatever_comes_first(shuffled):
    families = frames.group_by_family(["clean", "my_shift", *shuffled])
    assert list(families) == ["noise", "blur", "weather", "digital", "other"]
    assert families["noise"] == ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"]
    assert families["other"] == ["my_shift"]
    assert sum(map(len, families.values())) == 20


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("ece", -1)])
def test_gains_are_signed_differences_of_models_that_have_both_strategies(frame, metric, sign):
    lone = frame[frame["strategy"] == "batch"].assign(model="other", value=0.0)
    gains = gain_over_baseline(pd.concat([frame, lone]), metric, method="ensemble")
    assert len(gains) == 96
    rows = frame[(frame["metric"] == metric) & (frame["method"] == "ensemble")]
    value = {(row.strategy, row.corruption, row.severity): row.value for row in rows.itertuples()}
    for row in gains.itertuples():
        before, after = (value[strategy, row.corruption, row.severity] for strategy in ("train", "batch"))
        assert (row.before, row.after, row.gain) == pytest.approx((before, after, sign * (after - before)))
