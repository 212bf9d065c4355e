"""`auto` as an experiment: its claims in made-up worlds, its tables, its plans on a few images."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from predbn.evaluation import Setting
from predbn.models import zoo
from predbn.paper import EXPERIMENTS, PLANS, Runs, Verdict, choose, documents, run_plan, verify
from predbn.paper.experiments import auto
from predbn.paper.plans import IMAGENET

from .auto_world import AutoWorld

EXPERIMENT = EXPERIMENTS["auto"]
needs_zoo = pytest.mark.skipif("resnet20-cifar10/batch/0" not in zoo.names(), reason="the zoo has no networks here")


@pytest.fixture(scope="module")
def as_meant(tmp_path_factory):
    return Runs(AutoWorld(1.0).write(tmp_path_factory.mktemp("auto") / "cifar10"))


@pytest.fixture(scope="module")
def as_batch(tmp_path_factory):
    return Runs(AutoWorld(0.0).write(tmp_path_factory.mktemp("null") / "cifar10"))


def accuracy(runs: Runs, plan: str, strategy: str, **selection: object) -> pd.DataFrame:
    results = runs[plan].filter(strategy=str(Setting.parse(strategy)), metric="accuracy", **selection)
    frame: pd.DataFrame = results.frame
    return frame


def test_it_is_found_by_its_name_in_any_case():
    assert choose(["auto"]) == choose(["AUTO"]) == [EXPERIMENT]


def test_every_claim_holds_if_auto_reaches_its_goals(as_meant):
    (findings,) = verify(as_meant, ["auto"]).values()
    assert {finding.verdict for finding in findings} == {Verdict.HOLDS}


def test_if_auto_equals_prediction_bn_only_what_does_not_need_a_gain_holds(as_batch):
    (findings,) = verify(as_batch, ["auto"]).values()
    verdicts = {finding.claim.id: finding.verdict for finding in findings}
    assert {id for id, verdict in verdicts.items() if verdict is Verdict.HOLDS} == {"auto.11", "auto.12", "auto.15"}
    assert {verdicts[f"auto.{number}"] for number in (1, 2, 8)} == {Verdict.FAILS}


def test_the_gain_is_over_the_better_of_the_two_in_every_cell(as_meant):
    cells = auto.gains_over_better(as_meant, auto.RESNET20)
    assert len(cells) == 10 * 96 * 6
    keys = ["model", "corruption", "severity", "batch_size"]
    expected = {
        strategy: pd.concat(
            accuracy(as_meant, plan, strategy, method="vanilla").set_index(keys)["value"] for plan in plans
        )
        for strategy, plans in {
            "train": ("methods", "auto-sizes"),
            "batch": ("methods", "auto-sizes"),
            auto.ONE_PASS: ("auto-methods", "auto-sizes"),
        }.items()
    }
    for row in cells.sample(40, random_state=0).to_dict("records"):
        train, batch, one_pass = (values[tuple(row[key] for key in keys)] for values in expected.values())
        assert row["gain"] == pytest.approx(one_pass - max(train, batch))


def test_the_worst_cell_on_imagenet_has_an_interval_over_images(as_batch):
    measurements = verify(as_batch, ["auto"])[EXPERIMENT][1].measurements
    assert [each.over for each in measurements] == ["images", "images"]
    for network, each in zip(auto.IMAGENET_NETWORKS, measurements, strict=True):
        assert each.what.startswith(f"{network.label}: accuracy: gain of auto, one pass, batches of ")
        lowest = auto.gains_over_better(as_batch, network)["gain"].min()
        assert each.interval.estimate == pytest.approx(lowest, abs=1e-3)


def test_missing_results_are_reported_everywhere(tmp_path):
    skip = ("auto-compared", *(plan.name for plan in auto.IMAGENET_AUTO_PLANS))
    part = Runs(AutoWorld().write(tmp_path / "cifar10", skip=skip))
    figures = {figure.name: list(figure.variants) for figure in EXPERIMENT.figures(part)}
    metrics = ("accuracy", "Brier score", "ECE")
    assert figures == {"lost": [("ResNet-20",)], "streams": [("ResNet-20", metric) for metric in metrics]}
    page = documents(part, tmp_path)["auto-results.md"]
    assert "Not measured: " in page.split("## Comparison of strategies")[1].split("ResNet-50:")[0]
    assert "| `auto` |" in page


def test_figures_of_every_network_are_drawn(as_meant):
    figures = EXPERIMENT.figures(as_meant)
    assert {figure.name: len(figure.variants) for figure in figures} == {"sizes": 9, "lost": 3, "streams": 9}
    assert all(variant.chart.to_dict()["title"] for figure in figures for variant in figure.variants.values())
    shown = EXPERIMENT.figure_specs[0].variants(as_meant, only_first=True)
    assert list(shown) == [(network.label, "accuracy") for network in auto.NETWORKS]


def row(table: str, name: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip(" *") for cell in line.split("|")[2:-1]]


def test_tables_agree_with_the_results(as_meant):
    resnet50 = auto.IMAGENET_NETWORKS[0]
    frame = accuracy(as_meant, "auto-compared", auto.ONE_PASS, batch_size=20)
    mean = frame[frame["severity"] > 0]["value"].mean()
    assert row(auto.table_of_sizes(as_meant, auto.RESNET20), "`auto(passes=1)`")[2] == f"{100 * mean:.1f}"
    frame = accuracy(as_meant, resnet50.plan("streams"), auto.AUTO, order="by_class")
    mean = frame[frame["severity"] > 0]["value"].mean()
    assert row(auto.headline_of_auto(as_meant), "ResNet-50, `auto`")[5] == f"{100 * mean:.1f}"
    table = auto.table_of_gains(as_meant, auto.RESNET20)
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == ["1", "2", "5", "20", "100", "500"]
    cells = auto.gains_over_better(as_meant, auto.RESNET20).query("batch_size == 5")
    worst = cells.groupby(["corruption", "severity"])["gain"].mean().min()
    assert row(table, "5")[-1].startswith(f"{100 * worst:+.1f}".replace("-", "\N{MINUS SIGN}"))
    assert "ensemble, auto, one pass" in auto.table_of_methods(as_meant, auto.RESNET20)
    assert "ensemble" not in auto.table_of_methods(as_meant, resnet50)


def test_the_plans_cover_what_the_claims_need():
    sizes = PLANS["auto-sizes"].full
    assert (sizes.batch_sizes, sizes.images, sizes.shifts) == ((1, 2, 5, 20, 100), 5000, ("all",))
    assert PLANS["auto-methods"].full.images is None
    for network in auto.NETWORKS:
        assert PLANS[network.plan("streams")].full.orders[-2:] == ("by_class", "dirichlet:0.1")
        assert PLANS[network.plan("mixtures")].full.shifts == ("mixed-19",)
    for plan in auto.IMAGENET_AUTO_PLANS:
        assert plan.data_set == IMAGENET
        assert plan.full.images is not None
    for plan in auto.CIFAR10_AUTO_PLANS:
        assert plan.quick.data == "sample"
        assert plan.quick.strategies == plan.full.strategies


@needs_zoo
def test_a_quick_plan_runs_and_is_not_computed_again(tmp_path, monkeypatch):
    plan = PLANS["auto-mixtures"]
    monkeypatch.setitem(PLANS, "auto-mixtures", replace(plan, quick=replace(plan.quick, seeds=(0,))))
    calls = []
    options = {"quick": True, "images": 20, "progress": lambda *now: calls.append(now)}
    assert run_plan("auto-mixtures", tmp_path, **options) is None
    assert calls[-1][:2] == (2, 2)
    calls.clear()
    assert run_plan("auto-mixtures", tmp_path, **options) is None
    assert calls == [(0, 0, "")]
    card = Runs(tmp_path)["auto-mixtures"].card
    assert "calibration" in card
    assert card["validation"]["name"] != card["data"]["name"]


@pytest.mark.usefixtures("small_network")
def test_on_imagenet_auto_is_calibrated_on_images_that_are_not_evaluated(tmp_path, pictures):
    name = auto.IMAGENET_NETWORKS[1].plan("mixtures")
    assert run_plan(name, tmp_path / "imagenet", root=pictures, images=8) is None
    card = Runs(tmp_path / "imagenet")[name].card
    assert card["data"]["images"] == 8
    assert card["validation"]["images"] == 1000 - 8
    gap = run_plan(name, tmp_path / "other", root=pictures, images=1000)
    assert gap is not None
    assert "all 1,000 are evaluated" in gap
