"""Tidy frames: what is refused, what is told apart, in which order."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predbn.common.errors import ReportError
from predbn.report import frames
from predbn.shifts import names


def test_missing_columns_are_named(frame):
    with pytest.raises(ReportError, match="no column severity, value: it needs model, method"):
        frames.checked(frame.drop(columns=["value", "severity"]))


def test_no_rows_and_rows_twice_are_refused(frame):
    with pytest.raises(ReportError, match="no rows"):
        frames.checked(frame[:0])
    with pytest.raises(ReportError, match=r"has 2 rows twice, the first being .*'method': 'vanilla'"):
        frames.checked(pd.concat([frame, frame[:2]]))


def test_an_unknown_metric_is_answered_with_those_there_are(frame):
    with pytest.raises(ReportError, match="no metric 'mse': they have accuracy, brier, ece"):
        frames.of_metric(frame, "mse")


def test_columns_may_be_categories(frame):
    columns = ["model", "method", "strategy", "corruption", "order", "metric"]
    same = frames.with_series(frames.checked(frame.astype(dict.fromkeys(columns, "category"))))
    pd.testing.assert_series_equal(same["series"], frames.with_series(frames.checked(frame))["series"])


def test_trainings_of_one_network_are_one_setting_and_are_averaged(frame):
    again = frame.assign(model="zoo:resnet20-cifar10/batch/1", value=frame["value"] + 0.5)
    both = frames.checked(pd.concat([frame, again]))
    assert list(frames.settings(both)) == [""]
    mean = frames.averaged(frames.of_metric(both, "accuracy"))
    single = frames.averaged(frames.of_metric(frames.checked(frame), "accuracy"))
    assert mean["value"].to_numpy() == pytest.approx(single["value"].to_numpy() + 0.25)


def test_what_differs_within_a_series_makes_settings_and_longer_names(frame):
    both = frames.checked(pd.concat([frame, frame.assign(batch_size=10, order="sorted")]))
    assert list(frames.settings(both)) == ["batch size 10, order sorted", "batch size 500, order shuffled"]
    assert "vanilla · train · batch size 10, order sorted" in set(frames.with_series(both)["series"])


def test_a_model_of_its_own_for_a_method_is_no_setting(frame):
    frame.loc[frame["method"] == "ensemble", "model"] = "zoo:resnet20-cifar10/batch/*"
    assert list(frames.settings(frames.checked(frame))) == [""]


def test_series_are_in_the_order_of_methods_and_strategies(frame):
    shuffled = frames.checked(frame.sample(frac=1, random_state=0))
    assert list(frames.series_of(shuffled)["series"]) == [
        f"{method} · {strategy}" for method in ("vanilla", "temperature", "ensemble") for strategy in ("train", "batch")
    ]


@given(st.permutations(names("all")))
def test_families_keep_the_published_order_whatever_comes_first(shuffled):
    found = frames.families(["clean", "my_shift", *shuffled])
    assert list(found) == ["noise", "blur", "weather", "digital", "other"]
    assert found["noise"] == ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"]
    assert found["other"] == ["my_shift"]
    assert sum(map(len, found.values())) == 20
