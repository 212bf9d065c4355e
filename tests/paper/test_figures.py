"""Every figure is drawn, as files and on the page."""

from functools import partial

import altair as alt
import pytest

from predbn.common import NotMeasured
from predbn.paper import EXPERIMENTS, PLANS, Runs, save_figures
from predbn.paper.experiment import FigureSpec
from predbn.paper.figures import PAGE
from predbn.report import FigureVariant

from ..report import browser
from .world import World

DRAWN = [each for each in EXPERIMENTS.values() if each.plans and not each.id.startswith("I")]


@pytest.mark.parametrize("experiment", DRAWN, ids=lambda experiment: experiment.id)
def test_every_experiment_has_a_figure(experiment, as_the_paper):
    assert experiment.figure_specs
    for spec in experiment.figure_specs:
        variants = list(spec.variants(as_the_paper).values())
        assert variants
        for draw in {variants[0], variants[-1]}:
            variant = draw(as_the_paper)
            assert variant.chart.to_dict()["title"]
            assert len({look.series for look in variant.styles}) == len(variant.styles) > 0


def test_only_what_is_asked_for_is_drawn_and_what_is_missing_is_left_out(nothing):
    drawn = []

    def draw(name: str, runs: Runs) -> FigureVariant:
        if name == "missing":
            raise NotMeasured("nothing")
        drawn.append(name)
        return FigureVariant(alt.LayerChart())

    names = ("a", "missing", "b")
    spec = FigureSpec("name", "title", "caption", ("letter",), {(name,): partial(draw, name) for name in names})
    assert list(spec.draw(nothing, only_first=True).variants) == [("a",)]
    assert drawn == ["a"]
    assert list(spec.draw(nothing).variants) == [("a",), ("b",)]
    charts = {(network, metric): partial(draw, metric) for network in "xy" for metric in "ab"}
    spec = FigureSpec("name", "title", "caption", ("network", "metric"), charts)
    assert list(spec.draw(nothing, only_first=True).variants) == [("x", "a"), ("y", "a")]


@pytest.mark.parametrize("id", ["D1", "D2", "D3", "D4"])
def test_results_next_to_the_folder_are_drawn_too(id, tmp_path):
    """The plans of one data set are found from the folder of another."""
    skip = tuple(name for name in PLANS if name not in ("methods", "inside-crops"))
    World().write(tmp_path / "cifar10", quick=True, skip=skip)
    names = [
        [panel.name for panel in EXPERIMENTS[id].figures(Runs(tmp_path / folder), only_first=True)]
        for folder in ("cifar10", "imagenet")
    ]
    assert names[0] == names[1] != []


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.id)
def test_without_results_there_is_no_figure(experiment, nothing):
    assert experiment.figures(nothing) == []


def test_boxes_end_at_the_lowest_and_the_highest_corruption(as_the_paper):
    (panel,) = EXPERIMENTS["C7"].figures(as_the_paper)
    spec = panel.variants["accuracy",].chart.to_dict()
    rows = spec["datasets"][spec["layer"][0]["data"]["name"]]
    box = next(row for row in rows if row["series"] == "train BN" and row["severity"] == 5)
    frame = as_the_paper["methods"].frame
    chosen = frame[(frame["strategy"] == "train") & (frame["method"] == "vanilla") & (frame["severity"] == 5)]
    means = chosen[chosen["metric"] == "accuracy"].groupby("corruption")["value"].mean()
    assert (box["low"], box["median"], box["high"]) == pytest.approx(
        (means.min(), means.median(), means.max()), rel=1e-4
    )


def test_they_are_saved_with_a_page(as_the_paper, tmp_path):
    saved = save_figures(tmp_path, as_the_paper, ["C7", "I1"], suffixes=(".svg", ".pdf"))
    assert {path.name for path in saved} == {
        *(
            f"C7-last-layer-{metric}{suffix}"
            for metric in ("ECE", "accuracy", "Brier-score")
            for suffix in (".svg", ".pdf")
        ),
        PAGE,
    }
    page = (tmp_path / PAGE).read_text()
    assert "Prediction statistics in the last batch norm layer alone" in page
    assert "has no results of the plan resnet50-methods" in page
    assert (tmp_path / "C7-last-layer-ECE.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.skipif(browser.find_chromium() is None, reason="no Chromium on this machine")
def test_the_page_draws_every_figure_without_errors(as_the_paper, tmp_path):
    page = save_figures(tmp_path, as_the_paper, ["C5", "C7", "D2", "D4"], suffixes=())[-1]
    asked = (
        "return { drawn: document.querySelectorAll('figure svg').length, wide: document.documentElement.scrollWidth };"
    )
    seen = browser.ask(page, asked)
    assert (seen["drawn"], seen["complaints"], seen["fetched"]) == (4, [], [])
    assert seen["wide"] <= 1000
