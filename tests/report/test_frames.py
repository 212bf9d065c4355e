"""Tidy frames: which are wrong, how rows are grouped and ordered, and gains against a plain loop."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.common import ReportError
from predbn.report import frames
from predbn.report.frames import gain_over_baseline
from predbn.shifts import names


def test_missing_columns_are_named(frame):
    with pytest.raises(ReportError, match="no column severity, value: it needs model, method"):
        frames.check_results(frame.drop(columns=["value", "severity"]))


def test_no_rows_and_repeated_rows_raise(frame):
    with pytest.raises(ReportError, match="no rows"):
        frames.check_results(frame[:0])
    with pytest.raises(ReportError, match=r"has 2 rows twice, the first being .*'method': 'vanilla'"):
        frames.check_results(pd.concat([frame, frame[:2]]))


def test_an_unknown_metric_is_answered_with_those_there_are(frame):
    with pytest.raises(ReportError, match="no metric 'mse': they have accuracy, brier, ece"):
        frames.rows_of_metric(frame, "mse")


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


def test_a_report_is_about_batches_that_are_not_attacked(frame):
    attacked = frame.assign(batch_size=1000, order="attacked:targeted")
    both = frames.check_results(pd.concat([frame, attacked]))
    assert frames.main_setting(frames.split_by_setting(both)) == "batch size 500, order shuffled"
    assert frames.attacks(both) == ["attacked:targeted"]
    assert frames.attacks(frame) == []


def test_if_a_method_has_its_own_model_that_is_not_a_setting(frame):
    frame.loc[frame["method"] == "ensemble", "model"] = "zoo:resnet20-cifar10/batch/*"
    assert list(frames.split_by_setting(frames.check_results(frame))) == [""]


def test_series_are_in_the_order_of_methods_and_strategies(frame):
    shuffled = frames.check_results(frame.sample(frac=1, random_state=0))
    assert list(frames.list_series(shuffled)["series"]) == [
        f"{method} · {strategy}" for method in ("vanilla", "temperature", "ensemble") for strategy in ("train", "batch")
    ]


@given(st.permutations(names("all")))
def test_families_keep_the_published_order_whatever_comes_first(shuffled):
    found = frames.group_by_family(["clean", "my_shift", *shuffled])
    assert list(found) == ["noise", "blur", "weather", "digital", "other"]
    assert found["noise"] == ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"]
    assert found["other"] == ["my_shift"]
    assert sum(map(len, found.values())) == 20


@pytest.mark.parametrize(("metric", "sign"), [("accuracy", 1), ("ece", -1)])
def test_gains_are_signed_differences_split_by_split(frame, metric, sign):
    found = gain_over_baseline(frame, metric, method="ensemble")
    assert len(found) == 96
    rows = frame[(frame["metric"] == metric) & (frame["method"] == "ensemble")]
    value = {(row.strategy, row.corruption, row.severity): row.value for row in rows.itertuples()}
    for row in found.itertuples():
        before, after = (value[strategy, row.corruption, row.severity] for strategy in ("train", "batch"))
        assert (row.before, row.after) == pytest.approx((before, after))
        assert row.gain == pytest.approx(sign * (after - before))


def test_only_models_that_have_both_are_compared(frame):
    lone = frame[frame["strategy"] == "batch"].assign(model="other", value=0.0)
    pd.testing.assert_frame_equal(
        gain_over_baseline(pd.concat([frame, lone]), "accuracy"), gain_over_baseline(frame, "accuracy")
    )


def test_what_cannot_be_compared_is_said(frame):
    with pytest.raises(
        ReportError, match="both strategies 'train' and 'ema' for method 'vanilla': they have batch, train"
    ):
        gain_over_baseline(frame, "accuracy", strategy="ema")
    with pytest.raises(ReportError, match="not known which way 'confidence' is better"):
        gain_over_baseline(frame.assign(metric="confidence"), "confidence")


def test_one_method_is_not_repeated_in_every_name(frame):
    few = frames.check_results(frame[frame["method"] == "ensemble"])
    assert list(frames.list_series(few)["series"]) == ["train", "batch"]


def test_old_and_new_names_of_a_strategy_are_told_apart(frame):
    few = frame[(frame["method"] == "vanilla") & (frame["strategy"] == "batch")]
    specs = ["auto(calibrated=True, passes=4)", "auto(skewed=False, calibrated=True)"]
    both = frames.check_results(pd.concat([few.assign(strategy=spec) for spec in specs]))
    assert list(frames.list_series(both)["series"]) == ["auto", "auto(skewed=False)"]


def test_names_as_a_reader_sees_them():
    assert frames.display_name("gaussian_noise") == "gaussian noise"
    assert frames.display_name("in_turn-all") == "in_turn-all"
    assert [frames.severity_label(severity) for severity in (0, 3)] == ["clean", "3"]
