"""The demo, end to end, on fewer images: the claim of the paper holds for the networks of the package."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predbn.commands.demo import demo_plan, run_demo


@pytest.fixture(scope="module")
def plan():
    changes = {"models": "zoo:resnet20-cifar10/batch/[0-1]", "severities": (3, 5), "images": 60, "batch_sizes": 60}
    return replace(demo_plan(), **changes)


@pytest.fixture(scope="module")
def shown(plan, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    return run_demo(out, plan), out


@pytest.mark.parametrize("method", ["vanilla", "ensemble"])
def test_prediction_time_bn_is_better_under_shift(shown, method):
    results, _ = shown
    shifted = results.filter(method=method, severity=[3, 5]).frame
    means = shifted.groupby(["metric", "strategy", "severity"])["value"].mean()
    for severity in (3, 5):
        assert means["accuracy", "batch", severity] > means["accuracy", "train", severity] + 0.02
        assert means["brier", "batch", severity] < means["brier", "train", severity] - 0.02


def test_the_report_is_written_whole(shown):
    _, out = shown
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert "Prediction-time BN raises accuracy" in page


def test_it_prints_tables_and_where_the_report_is(shown, plan, capsys):
    _, out = shown
    run_demo(out, plan)
    text = capsys.readouterr().out
    for part in ("ensemble · batch", "accuracy, %", "gaussian noise", "report.html", "predbn.adapt(model)"):
        assert part in text
