"""`auto` as an experiment: its claims in made-up worlds, its tables, its plans on a handful of images."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from predbn import cli
from predbn.data import wnids
from predbn.evaluation import Setting
from predbn.models import zoo
from predbn.paper import EXPERIMENTS, PLANS, PaperError, Runs, Verdict, auto_tables, choose, document, fill_page, verify
from predbn.paper import imagenet as room
from predbn.paper.auto_plans import (
    ARMS,
    AUTO,
    CIFAR_ARM,
    CIFAR_AUTO_PLANS,
    IMAGENET_ARMS,
    IMAGENET_AUTO_PLANS,
    LARGEST,
    SKEWED,
    SMALLER,
)
from predbn.paper.experiments.auto_figures import PANELS
from predbn.paper.experiments.auto_series import against_the_better, clearly
from predbn.paper.run import run_plan

from ..data.folders import make_folder
from ..evaluation import tiny
from .auto_world import AutoWorld

NAME = str(Setting.parse(AUTO))


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


def test_every_claim_holds_where_auto_does_what_it_is_meant_to(as_meant):
    (findings,) = verify(as_meant, ["auto"]).values()
    assert {finding.claim.id: finding.verdict for finding in findings} == {
        f"auto.{number}": Verdict.HOLDS for number in range(1, 13)
    }


def test_where_auto_is_prediction_bn_only_what_methods_add_holds(as_batch):
    (findings,) = verify(as_batch, ["auto"]).values()
    assert {f.claim.id for f in findings if f.verdict is Verdict.HOLDS} == {"auto.11"}
    assert findings[0].verdict is findings[1].verdict is findings[7].verdict is Verdict.FAILS


def test_the_gain_is_that_over_the_better_of_the_two_in_every_cell(as_meant):
    cells = against_the_better(as_meant, CIFAR_ARM)
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
    assert found[0].what.startswith("ResNet-50: accuracy, points: auto, batches of ")
    for arm, each in zip(IMAGENET_ARMS, found, strict=True):
        lowest = against_the_better(as_batch, arm)["gain"].min()
        assert each.interval.estimate == pytest.approx(lowest, abs=1e-3)


def test_what_is_not_measured_is_said_wherever_it_is_asked_for(nowhere, tmp_path):
    (findings,) = verify(nowhere, ["auto"]).values()
    assert {finding.verdict for finding in findings} == {Verdict.UNMEASURED}
    assert all(text.startswith(("Not measured: ", "| claim")) for text in auto_tables(nowhere).values())
    assert EXPERIMENTS["auto"].panels(nowhere) == []
    part = Runs(AutoWorld().write(tmp_path / "cifar10", skip=("auto-compared", *IMAGENET_AUTO_PLANS)))
    panels = {panel.name: list(panel.variants) for panel in EXPERIMENTS["auto"].panels(part)}
    assert panels == {
        "lost": [("ResNet-20",)],
        "streams": [("ResNet-20", m) for m in ("accuracy", "Brier score", "ECE")],
    }


def test_figures_are_drawn_and_the_document_on_the_paper_leaves_it_to_its_page(as_meant):
    panels = EXPERIMENTS["auto"].draw(as_meant)
    assert {panel.name: len(panel.variants) for panel in panels} == {"sizes": 9, "lost": 3, "streams": 9}
    for panel in panels:
        assert all(variant.chart.to_dict()["title"] for variant in panel.variants.values())
    assert "auto.1" not in document(as_meant, figures="figures")


def test_tables_say_what_results_say(as_meant):
    tables = auto_tables(as_meant)
    frame = as_meant["auto-compared"].frame
    chosen = (
        (frame["strategy"] == str(Setting.parse(SKEWED))) & (frame["metric"] == "accuracy") & (frame["severity"] > 0)
    )
    mean = 100 * frame[chosen & (frame["batch_size"] == 20)]["value"].mean()
    (line,) = (each for each in tables["sizes ResNet-20"].splitlines() if each.startswith("| `auto(skewed=True)` |"))
    assert line.split("|")[4].strip(" *") == f"{mean:.1f}"
    (line,) = (each for each in tables["headline"].splitlines() if each.startswith("| ResNet-50, `auto` |"))
    cells = against_the_better(as_meant, IMAGENET_ARMS[0]).query("batch_size == 5 and severity > 0")
    assert line.split("|")[4].strip(" *") == f"{100 * cells['auto'].mean():.1f}"
    guarantee = tables["guarantee ResNet-20"].splitlines()
    assert [line.split("|")[1].strip() for line in guarantee[2:]] == [str(size) for size in (*SMALLER, LARGEST)]
    worst = against_the_better(as_meant, CIFAR_ARM).query("batch_size == 5")["gain"].min()
    assert f"{100 * worst:+.1f}".replace("-", "\N{MINUS SIGN}") in guarantee[4].split("|")[-2]
    assert "| `auto` |" in tables["streams EfficientNet-Lite0"]
    assert "| ensemble, auto |" in tables["methods ResNet-20"]
    assert "ensemble" not in tables["methods ResNet-50"]


def test_what_is_clear_is_counted_image_by_image(as_meant):
    arm = IMAGENET_ARMS[0]
    cells = against_the_better(as_meant, arm).query("batch_size == 5")
    cell = cells.iloc[7]
    found = clearly(as_meant, arm, cells).loc[cell.name]
    hits = as_meant[arm.sizes].hits
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


def test_figures_are_drawn_beside_the_page_where_they_are_measured(as_meant, nowhere, tmp_path):
    names = [*auto_tables(as_meant), *(f"figure {panel} {arm.single}" for panel in PANELS for arm in ARMS)]
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- auto {name} -->\n<!-- /auto {name} -->\n" for name in names))
    fill_page(page, as_meant, figures=tmp_path / "drawn")
    files = {f"{panel}-{arm.single}.svg" for panel in PANELS for arm in ARMS}
    assert {file.name for file in (tmp_path / "drawn").iterdir()} == files
    assert all(f"](drawn/{file})" in page.read_text() for file in files)
    fill_page(page, nowhere, figures=tmp_path / "none")
    assert page.read_text().count("Not measured.") == len(files)
    assert not (tmp_path / "none").exists()


def test_the_plans_cover_what_is_asked():
    sizes = PLANS[CIFAR_ARM.sizes].full
    assert (sizes.batch_sizes, sizes.images, sizes.shifts) == ((1, 2, 5, 20, 100), 5000, ("all",))
    assert PLANS[CIFAR_ARM.methods].full.images is None
    assert {str(Setting.parse(each)) for each in (AUTO, SKEWED, "prior(N=4)", "prior(N=16)", "prior(N=64)")} <= set(
        PLANS[CIFAR_ARM.compared].full.strategies
    )
    for arm in ARMS:
        assert PLANS[arm.streams].full.orders[-2:] == ("by_class", "dirichlet:0.1")
        assert any(strategy.startswith("ema") for strategy in PLANS[arm.streams].full.strategies)
        assert PLANS[arm.mixtures].full.shifts == ("mixed-19",)
    for name in IMAGENET_AUTO_PLANS:
        assert PLANS[name].home == room.IMAGENET
        assert PLANS[name].full.images is not None
    for name in CIFAR_AUTO_PLANS:
        assert PLANS[name].quick.data == "sample"
        assert PLANS[name].quick.strategies == PLANS[name].full.strategies


@pytest.mark.skipif("resnet20-cifar10/batch/0" not in zoo.names(), reason="the zoo has no networks here")
def test_a_quick_plan_is_carried_out_and_continued(tmp_path):
    told = []
    assert run_plan("auto-mixtures", tmp_path, quick=True, images=20, progress=lambda *now: told.append(now)) is None
    assert told[-1][:2] == (6, 6)
    told.clear()
    assert run_plan("auto-mixtures", tmp_path, quick=True, images=20, progress=lambda *now: told.append(now)) is None
    assert told == [(0, 0, "")]
    card = Runs(tmp_path)["auto-mixtures"].card
    assert "calibration" in card
    assert card["validation"]["name"] != card["data"]["name"]


def test_on_imagenet_auto_is_calibrated_on_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(room, "load", lambda reference: tiny.classifier(0, 1000))
    pictures = make_folder(tmp_path / "val", wnids(), height=32, width=32)
    arm = IMAGENET_ARMS[1]
    assert run_plan(arm.mixtures, tmp_path / "imagenet", root=pictures, images=8) is None
    card = Runs(tmp_path / "imagenet")[arm.mixtures].card
    assert card["data"]["images"] == 8
    assert card["validation"]["images"] == 1000 - 8
    gap = run_plan(arm.mixtures, tmp_path / "other", root=pictures, images=1000)
    assert gap is not None
    assert "all 1,000 are measured" in gap
