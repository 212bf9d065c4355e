"""The demo, end to end, on fewer images: the claim of the paper holds for the network of the package."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from predbn.cli import app
from predbn.commands import demo
from predbn.evaluation import Results


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the demo prints, and its folder."""
    out = tmp_path_factory.mktemp("demo")
    plan = replace(demo.demo_plan(), shifts=("clean", "gaussian_noise", "contrast"), severities=(5,), images=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "demo_plan", lambda: plan)
        patch.setenv("COLUMNS", "80")
        done = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert done.exit_code == 0, done.exception
    return done.output, out


def test_prediction_time_bn_is_better_under_shift(shown):
    results = Results.load(shown[1])
    for strategy in ("batch", "auto(passes=4)"):
        means = results.filter(strategy=["train", strategy], severity=5).frame.groupby(["metric", "strategy"])["value"]
        accuracy, brier = means.mean()["accuracy"], means.mean()["brier"]
        assert accuracy.drop("train").item() > accuracy["train"] + 0.02
        assert brier.drop("train").item() < brier["train"] - 0.02


def test_the_report_is_written_whole_and_shows_the_shifts(shown):
    page = (shown[1] / "report.html").read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert "At severity 5, accuracy is" in page
    assert page.count('<img src="data:image/png') == 3


def test_it_prints_a_table_that_fits_a_terminal_and_where_the_report_is(shown):
    text, _ = shown
    words = " ".join(text.split())
    for part in (" auto(passes=4) ", "accuracy, %", "gaussian noise", "report.html", "predbn.adapt(model)"):
        assert part in words
    assert "The intervals are over images" in words
    assert "…" not in text
    tables = [line for line in text.splitlines() if "report.html" not in line]
    assert max(map(len, tables)) <= 80
