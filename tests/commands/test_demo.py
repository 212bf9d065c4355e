"""The demo, end to end, on fewer images: the claim of the paper holds for the network of the package."""

from __future__ import annotations

from dataclasses import replace

import pytest

from predbn.commands.demo import demo_plan, run_demo


@pytest.fixture(scope="module")
def plan():
    return replace(demo_plan(), shifts=("clean", "gaussian_noise", "contrast"), severities=(5,), images=60)


@pytest.fixture(scope="module")
def shown(plan, tmp_path_factory):
    out = tmp_path_factory.mktemp("demo")
    return run_demo(out, plan), out


def test_prediction_time_bn_is_better_under_shift(shown):
    results, _ = shown
    for strategy in ("batch", "auto"):
        means = results.filter(strategy=["train", strategy], severity=5).frame.groupby(["metric", "strategy"])["value"]
        accuracy, brier = means.mean()["accuracy"], means.mean()["brier"]
        assert accuracy.drop("train").item() > accuracy["train"] + 0.02
        assert brier.drop("train").item() < brier["train"] - 0.02


def test_the_report_is_written_whole_and_shows_the_shifts(shown):
    _, out = shown
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert "At severity 5, accuracy is" in page
    assert page.count('<img src="data:image/png') == 3


def test_it_prints_tables_that_fit_a_terminal_and_where_the_report_is(shown, plan, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out = shown
    run_demo(out, plan)
    text = capsys.readouterr().out
    for part in (
        "  auto",
        "accuracy, %",
        "gaussian noise",
        "report.html",
        "predbn.adapt(model)",
        "The intervals are over images",
    ):
        assert part in text
    assert "…" not in text
    tables = [line for line in text.splitlines() if "report.html" not in line]
    assert max(map(len, tables)) <= 80
