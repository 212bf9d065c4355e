"""`auto` as an experiment: its claims in made-up worlds, its tables, its plans on a few images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from predbn import cli
from predbn.data import wnids
from predbn.evaluation import Setting
from predbn.models import zoo
from predbn.paper import (
    EXPERIMENTS,
    PLANS,
    PaperError,
    Runs,
    Verdict,
    auto_tables,
    choose,
    document,
    fill_page,
    run_imagenet,
    run_plan,
    verify,
)
from predbn.paper.experiments.auto_figures import FIGURE_NAMES
from predbn.paper.experiments.auto_series import gains_in_standard_errors, gains_over_better
from predbn.paper.plans import IMAGENET
from predbn.paper.plans.auto import (
    ATTACKED,
    AUTO,
    CIFAR10_AUTO_PLANS,
    EVERYONE,
    IMAGENET_AUTO_PLANS,
    IMAGENET_NETWORKS,
    LARGEST,
    NETWORKS,
    ONE_PASS,
    RESNET20_PLANS,
    SKEWED,
    SMALLER,
    TARGETED,
)
from predbn.shifts import ATTACKS

from ..data.folders import make_folder
from ..evaluation import tiny
from .auto_world import AutoWorld

NAME = str(Setting.parse(ONE_PASS))


@pytest.fixture(scope="module")
def as_meant(tmp_path_factory):
    return Runs(AutoWorld(1.0).write(tmp_path_factory.mktemp("auto") / "cifar10"))


@pytest.fixture(scope="module")
def as_batch(tmp_path_factory):
    return Runs(AutoWorld(0.0).write(tmp_path_factory.mktemp("null") / "cifar10"))


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("nothing") / "cifar10")


def test_it_is_found_by_its_name_in_any_case():
    assert choose(["auto"]) == choose(["AUTO"]) == [EXPERIMENTS["auto"]]


def test_every_claim_holds_if_auto_reaches_its_goals(as_meant):
    (findings,) = verify(as_meant, ["auto"]).values()
    assert {finding.claim.id: finding.verdict for finding in findings} == {
        f"auto.{number}": Verdict.HOLDS for number in range(1, 17)
    }


def test_if_auto_equals_prediction_bn_only_what_does_not_need_a_gain_holds(as_batch):
    (findings,) = verify(as_batch, ["auto"]).values()
    assert {f.claim.id for f in findings if f.verdict is Verdict.HOLDS} == {"auto.11", "auto.12", "auto.15"}
    assert findings[0].verdict is findings[1].verdict is findings[7].verdict is Verdict.FAILS


def test_the_gain_is_over_the_better_of_the_two_in_every_cell(as_meant):
    cells = gains_over_better(as_meant, RESNET20_PLANS)
    assert len(cells) == 10 * 96 * 6
    train = _slowly(as_meant, "methods", "train") | _slowly(as_meant, "auto-sizes", "train")
    batch = _slowly(as_meant, "methods", "batch") | _slowly(as_meant, "auto-sizes", "batch")
    auto = _slowly(as_meant, "auto-methods", NAME) | _slowly(as_meant, "auto-sizes", NAME)
    for row in cells.sample(40, random_state=0).to_dict("records"):
        split = row["model"], row["corruption"], row["severity"]
        cell = (*split, row["batch_size"])
        assert row["gain"] == pytest.approx(auto[cell] - max(train[cell], batch[cell]))


def _slowly(runs: Runs, plan: str, strategy: str) -> dict[tuple[str, str, int, int], float]:
    frame: pd.DataFrame = runs[plan].frame
    return {
        (row["model"], row["corruption"], row["severity"], row["batch_size"]): row["value"]
        for row in frame.to_dict("records")
        if row["strategy"] == strategy and row["metric"] == "accuracy" and row["method"] == "vanilla"
    }


def test_the_worst_cell_on_imagenet_has_an_interval_over_images(as_batch):
    found = verify(as_batch, ["auto"])[EXPERIMENTS["auto"]][1].measurements
    assert [each.over for each in found] == ["images", "images"]
    assert found[0].what.startswith("ResNet-50: accuracy: gain of auto, one pass, batches of ")
    for plans, each in zip(IMAGENET_NETWORKS, found, strict=True):
        lowest = gains_over_better(as_batch, plans)["gain"].min()
        assert each.interval.estimate == pytest.approx(lowest, abs=1e-3)


def test_missing_results_are_reported_everywhere(nowhere, tmp_path):
    (findings,) = verify(nowhere, ["auto"]).values()
    assert {finding.verdict for finding in findings} == {Verdict.UNMEASURED}
    assert all(text.startswith(("Not measured: ", "| claim")) for text in auto_tables(nowhere).values())
    assert EXPERIMENTS["auto"].figures(nowhere) == []
    part = Runs(
        AutoWorld().write(tmp_path / "cifar10", skip=("auto-compared", *(plan.name for plan in IMAGENET_AUTO_PLANS)))
    )
    panels = {panel.name: list(panel.variants) for panel in EXPERIMENTS["auto"].figures(part)}
    assert panels == {
        "lost": [("ResNet-20",)],
        "streams": [("ResNet-20", m) for m in ("accuracy", "Brier score", "ECE")],
    }


def test_figures_are_drawn_and_replication_md_leaves_auto_out(as_meant):
    panels = EXPERIMENTS["auto"].figures(as_meant)
    assert {panel.name: len(panel.variants) for panel in panels} == {"sizes": 9, "lost": 3, "streams": 9}
    for panel in panels:
        assert all(variant.chart.to_dict()["title"] for variant in panel.variants.values())
    assert "auto.1" not in document(as_meant, figures="figures")


def test_tables_agree_with_the_results(as_meant):
    tables = auto_tables(as_meant)
    frame = as_meant["auto-compared"].frame
    chosen = (
        (frame["strategy"] == str(Setting.parse(SKEWED))) & (frame["metric"] == "accuracy") & (frame["severity"] > 0)
    )
    mean = 100 * frame[chosen & (frame["batch_size"] == 20)]["value"].mean()
    (line,) = (each for each in tables["sizes ResNet-20"].splitlines() if each.startswith("| `auto(skewed=True)` |"))
    assert line.split("|")[4].strip(" *") == f"{mean:.1f}"
    (line,) = (each for each in tables["headline"].splitlines() if each.startswith("| ResNet-50, `auto` |"))
    frame = as_meant[IMAGENET_NETWORKS[0].streams].frame
    chosen = (frame["strategy"] == str(Setting.parse(AUTO))) & (frame["metric"] == "accuracy") & (frame["severity"] > 0)
    mean = 100 * frame[chosen & (frame["order"] == "by_class")]["value"].mean()
    assert line.split("|")[7].strip(" *") == f"{mean:.1f}"
    guarantee = tables["guarantee ResNet-20"].splitlines()
    assert [line.split("|")[1].strip() for line in guarantee[2:]] == [str(size) for size in (*SMALLER, LARGEST)]
    worst = gains_over_better(as_meant, RESNET20_PLANS).query("batch_size == 5")["gain"].min()
    assert f"{100 * worst:+.1f}".replace("-", "\N{MINUS SIGN}") in guarantee[4].split("|")[-2]
    assert "| `auto` |" in tables["streams EfficientNet-Lite0"]
    assert "| ensemble, auto, one pass |" in tables["methods ResNet-20"]
    assert "ensemble" not in tables["methods ResNet-50"]


def test_the_table_of_attacks_has_success_and_accuracy_with_and_without(as_meant):
    heads, _, *lines = (line.strip("| ").split(" | ") for line in auto_tables(as_meant)["attacks"].splitlines())
    assert [line[0].strip("`") for line in lines] == list(ATTACKED)
    for strategy, line in zip(ATTACKED, lines, strict=True):
        name = str(Setting.parse(strategy))
        expected = [
            100 * as_meant[plan].filter(strategy=name, order=order, metric=metric).frame["value"].mean()
            for plan, order, metric in (
                (TARGETED, "attacked:targeted", "success"),
                (TARGETED, "attacked:targeted", "accuracy"),
                (TARGETED, "shuffled", "accuracy"),
                (EVERYONE, "attacked:everyone", "accuracy"),
                (EVERYONE, "shuffled", "accuracy"),
            )
        ]
        assert line[1:] == [f"{value:.1f}" for value in expected]
    assert len(heads) == 6


@pytest.mark.skipif("resnet20-cifar10/batch/0" not in zoo.names(), reason="the zoo has no networks here")
def test_attacks_run_in_single_precision_and_are_not_computed_again(tmp_path, monkeypatch):
    monkeypatch.setitem(ATTACKS, "everyone", replace(ATTACKS["everyone"], steps=2))
    calls = []
    options = {"quick": True, "images": 10, "precision": "fp16", "progress": lambda *now: calls.append(now)}
    assert run_plan(EVERYONE, tmp_path, **options) is None
    assert calls[-1][:2] == (2, 2)
    calls.clear()
    assert run_plan(EVERYONE, tmp_path, **options) is None
    assert calls == [(0, 0, "")]
    results = Runs(tmp_path)[EVERYONE]
    assert results.card["precision"] == "fp32"
    assert len(results.filter(order="attacked:everyone", metric="accuracy").frame) == len(ATTACKED)


def test_standard_errors_are_over_images(as_meant):
    plans = IMAGENET_NETWORKS[0]
    cells = gains_over_better(as_meant, plans).query("batch_size == 5")
    cell = cells.iloc[7]
    found = gains_in_standard_errors(as_meant, plans, cells).loc[cell.name]
    hits = as_meant[plans.sizes].hits
    there = hits[(hits["corruption"] == cell["corruption"]) & (hits["severity"] == cell["severity"])]
    there = there[there["batch_size"] == 5].set_index("strategy")["hits"]
    one, other = (
        np.unpackbits(np.frombuffer(there[name], np.uint8)).astype(int)
        for name in (NAME, "batch" if cell["batch"] > cell["train"] else "train")
    )
    assert found == pytest.approx((one - other).mean() / stats.sem(one - other, ddof=0))


def test_a_page_is_filled_between_its_marks_and_only_there(nowhere, tmp_path):
    page = tmp_path / "auto.md"
    tables = auto_tables(nowhere)
    page.write_text(
        "# Title\n" + "".join(f"<!-- auto {name} -->\nold\n<!-- /auto {name} -->\nkept\n" for name in tables)
    )
    shown = CliRunner().invoke(cli.app, ["paper", "document", "--auto", str(page), "--results", str(nowhere.folder)])
    assert shown.exit_code == 0, shown.output
    text = page.read_text()
    assert text == "# Title\n" + "".join(
        f"<!-- auto {name} -->\n{table}\n<!-- /auto {name} -->\nkept\n" for name, table in tables.items()
    )
    missing = CliRunner().invoke(cli.app, ["paper", "document", "--auto", str(tmp_path / "nowhere.md")])
    assert missing.exit_code == 2
    page.write_text("nothing")
    with pytest.raises(PaperError, match="has no place for the table 'headline'"):
        fill_page(page, nowhere)
    page.write_bytes(b"\x93NUMPY")
    with pytest.raises(PaperError, match=r"auto\.md is not text in UTF-8"):
        fill_page(page, nowhere)


def test_measured_figures_are_drawn_and_linked(as_meant, nowhere, tmp_path):
    names = [*auto_tables(nowhere), *(f"figure {panel} {plans.label}" for panel in FIGURE_NAMES for plans in NETWORKS)]
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- auto {name} -->\n<!-- /auto {name} -->\n" for name in names))
    fill_page(page, as_meant, figures=tmp_path / "drawn")
    files = {f"{panel}-{plans.label}.svg" for panel in FIGURE_NAMES for plans in NETWORKS}
    assert {file.name for file in (tmp_path / "drawn").iterdir()} == files
    assert all(f"](drawn/{file})" in page.read_text() for file in files)
    fill_page(page, nowhere, figures=tmp_path / "none")
    assert page.read_text().count("Not measured.") == len(files)
    assert not (tmp_path / "none").exists()


def test_the_plans_cover_what_the_claims_need():
    sizes = PLANS[RESNET20_PLANS.sizes].full
    assert (sizes.batch_sizes, sizes.images, sizes.shifts) == ((1, 2, 5, 20, 100), 5000, ("all",))
    assert PLANS[RESNET20_PLANS.methods].full.images is None
    assert {str(Setting.parse(each)) for each in (ONE_PASS, SKEWED, "prior(N=4)", "prior(N=16)", "prior(N=64)")} <= set(
        PLANS[RESNET20_PLANS.compared].full.strategies
    )
    for plans in NETWORKS:
        assert PLANS[plans.streams].full.orders[-2:] == ("by_class", "dirichlet:0.1")
        assert any(strategy.startswith("ema") for strategy in PLANS[plans.streams].full.strategies)
        assert PLANS[plans.mixtures].full.shifts == ("mixed-19",)
    for plan in IMAGENET_AUTO_PLANS:
        assert plan.data_set == IMAGENET
        assert plan.full.images is not None
    for plan in CIFAR10_AUTO_PLANS:
        assert plan.quick.data == "sample"
        assert plan.quick.strategies == plan.full.strategies


@pytest.mark.skipif("resnet20-cifar10/batch/0" not in zoo.names(), reason="the zoo has no networks here")
def test_a_quick_plan_runs_and_is_not_computed_again(tmp_path, monkeypatch):
    plan = PLANS["auto-mixtures"]
    monkeypatch.setitem(PLANS, "auto-mixtures", replace(plan, quick=replace(plan.quick, seeds=(0,))))
    calls = []
    assert run_plan("auto-mixtures", tmp_path, quick=True, images=20, progress=lambda *now: calls.append(now)) is None
    assert calls[-1][:2] == (2, 2)
    calls.clear()
    assert run_plan("auto-mixtures", tmp_path, quick=True, images=20, progress=lambda *now: calls.append(now)) is None
    assert calls == [(0, 0, "")]
    card = Runs(tmp_path)["auto-mixtures"].card
    assert "calibration" in card
    assert card["validation"]["name"] != card["data"]["name"]


def test_on_imagenet_auto_is_calibrated_on_images_that_are_not_evaluated(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run_imagenet, "load", lambda reference: tiny.classifier(0, 1000))
    pictures = make_folder(tmp_path / "val", wnids(), height=32, width=32)
    plans = IMAGENET_NETWORKS[1]
    assert run_plan(plans.mixtures, tmp_path / "imagenet", root=pictures, images=8) is None
    card = Runs(tmp_path / "imagenet")[plans.mixtures].card
    assert card["data"]["images"] == 8
    assert card["validation"]["images"] == 1000 - 8
    gap = run_plan(plans.mixtures, tmp_path / "other", root=pictures, images=1000)
    assert gap is not None
    assert "all 1,000 are evaluated" in gap
