"""Metrics in words and numbers."""

from __future__ import annotations

import math

import pytest

from predbn.report.metric_info import metric_info, sort_metrics


@pytest.mark.parametrize(
    ("metric", "value", "text", "change"),
    [
        ("accuracy", 0.7036, "70.4\N{NO-BREAK SPACE}%", "+70.4"),
        ("accuracy", -0.012, "−1.2\N{NO-BREAK SPACE}%", "−1.2"),
        ("ece", 0.0812, "0.081", "+0.081"),
        ("nll", math.inf, "∞", "+∞"),
        ("nll", math.nan, "–", "–"),
    ],
)
def test_values_and_changes(metric, value, text, change):
    assert metric_info(metric).text(value) == text
    assert metric_info(metric).change(value) == change


def test_a_change_is_signed_so_that_positive_is_better():
    assert metric_info("accuracy").sign == 1
    assert metric_info("brier").sign == -1


def test_an_unknown_metric_has_its_name_and_no_direction():
    assert metric_info("entropy").label == "entropy"
    assert metric_info("entropy").better is None
    assert metric_info("entropy").direction == ""


def test_accuracy_comes_first_and_what_has_no_direction_last():
    assert sort_metrics(["entropy", "ece", "confidence", "accuracy", "ece"]) == [
        "accuracy",
        "ece",
        "confidence",
        "entropy",
    ]


def test_titles():
    assert metric_info("brier").title == "Brier score"
    assert metric_info("ece").chart_title == "ECE (lower is better)"
    assert metric_info("confidence").chart_title == "Confidence"
