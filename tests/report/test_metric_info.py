"""Metrics in words and numbers."""

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


@pytest.mark.parametrize(
    ("metric", "title", "sign"),
    [
        ("accuracy", "Accuracy (higher is better)", 1),
        ("brier", "Brier score (lower is better)", -1),
        ("confidence", "Confidence", 1),
        ("entropy", "Entropy", 1),  # not known
    ],
)
def test_titles_and_directions(metric, title, sign):
    info = metric_info(metric)
    assert (info.chart_title, info.sign) == (title, sign)
    assert (info.better is None) == ("better" not in title)


def test_accuracy_comes_first_and_what_has_no_direction_last():
    metrics = ["entropy", "ece", "confidence", "accuracy", "ece"]
    assert sort_metrics(metrics) == ["accuracy", "ece", "confidence", "entropy"]
