"""K1 carried out: on a folder of the user's, and quickly by itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch

from predbn.data.criteo import criteo, prepare, prepare_synthetic, write_synthetic_text
from predbn.models import CriteoSizes
from predbn.paper import EXPERIMENTS, PLANS, PaperError, Runs, Verdict, verify
from predbn.paper.clicks import LARGER_EPS, LATER, REAL, RESAMPLES, SYNTHETIC, UNSETTLED
from predbn.paper.experiments.criteo_randomised_features import spreads_of, table
from predbn.paper.run import run_plan
from predbn.training import CriteoRecipe, CriteoSets, produce_criteo

SIZES = CriteoSizes(widths=(8,)).limited(buckets=50, dimensions=2)
RECIPE = CriteoRecipe(batch_size=256, epochs=1, learning_rate=1e-2, norm_momentum=0.2, sizes=SIZES)


@pytest.fixture(autouse=True)
def _one_thread():
    """These networks are so small that threads only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _small_plans(monkeypatch):
    """The plans with fewer draws and percentages."""
    for name in (REAL, LATER, UNSETTLED, LARGER_EPS, SYNTHETIC):
        plan = PLANS[name]
        few = {"seeds": (0,), "severities": (25, 95), "batch_sizes": (100,)}
        monkeypatch.setitem(
            PLANS, name, replace(plan, full=replace(plan.full, **few), quick=replace(plan.quick, **few))
        )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Rows that say that they are real, later ones, and three networks; nothing synthetic, nothing unsettled."""
    place = tmp_path_factory.mktemp("criteo")
    for name, count, seed in (("rows", 4000, 0), ("later", 300, 1)):
        write_synthetic_text(place / f"{name}.txt", count, seed=seed)
        prepare(place / f"{name}.txt", place / name, processes=1)
    sets = CriteoSets(*(criteo(part, place / "rows") for part in ("train", "validation", "test")))
    produce_criteo(RECIPE, (0, 1, 2), sets, place)
    return place


def test_what_is_there_is_measured_and_what_is_not_is_said(root, tmp_path):
    results = tmp_path / "results" / "criteo"
    gaps = {name: run_plan(name, results, root=root) for name in EXPERIMENTS["K1"].plans}
    assert gaps[REAL] is None
    assert gaps[LATER] is None
    assert gaps[LARGER_EPS] is None
    assert "unsettled/criteo-mlp holds no networks" in gaps[UNSETTLED]
    assert "synthetic/rows has no prepared rows" in gaps[SYNTHETIC]
    runs = Runs(results)
    assert runs.measured == [REAL, LATER, LARGER_EPS]
    frame = runs[REAL].frame
    assert set(frame["corruption"]) == {"clean", "columns", "tokens", "marginals"}
    assert set(frame["method"]) == {"vanilla", "temperature", "ensemble"}
    assert set(frame["model"]) == {*(f"criteo-mlp/{seed}" for seed in range(3)), "criteo-mlp/*"}
    card = json.loads((results / REAL / "card.json").read_text())
    assert card["data"]["name"] == "criteo-test-randomised"
    assert str(root) not in json.dumps(card)
    (findings,) = verify(runs, ["K1"]).values()
    found = {finding.claim.id: finding for finding in findings}
    assert found["K1.3"].verdict is Verdict.UNMEASURED
    assert found["K1.1"].measurements[0].over == "rows, 3 networks"
    assert found["K1.1"].measurements[0].count == len(criteo("test", root / "rows"))
    assert len(found["K1.5"].measurements) == 2
    assert "train BN, eps 0.1" in found["K1.7"].measurements[0].what
    assert table(runs, LARGER_EPS).splitlines()[0].count("eps 0.1") == 4
    assert [panel.name for panel in EXPERIMENTS["K1"].draw(runs)] == [REAL]
    beside = Runs(tmp_path / "results" / "cifar10")
    assert beside.measured == [REAL, LATER, LARGER_EPS]
    assert beside.folders[:2] == [tmp_path / "results" / "cifar10", results]


def test_intervals_are_around_the_values(root, tmp_path):
    run_plan(REAL, tmp_path, root=root)
    runs = Runs(tmp_path)
    for metric in ("auc", "brier"):
        spread = spreads_of(runs, REAL)[metric]
        assert spread.resampled
        means, drawn = spread.means.iloc[0], spread.values.mean()
        assert (means[drawn.index] - drawn).abs().max() < 4e-3
    (tmp_path / REAL / RESAMPLES).unlink()
    alone = spreads_of(runs, REAL)["auc"]
    assert (alone.count, alone.over, alone.resampled) == (3, "networks", False)


def test_synthetic_rows_do_not_pass_for_real_ones(root, tmp_path):
    prepare_synthetic(1000, tmp_path / "rows")
    (tmp_path / "criteo-mlp").symlink_to(root / "criteo-mlp")
    with pytest.raises(PaperError, match="holds criteo-synthetic-train: real rows belong into rows"):
        run_plan(REAL, tmp_path / "results", root=tmp_path)


def test_a_quick_run_makes_its_own_rows_and_says_that_they_are_synthetic(tmp_path):
    assert run_plan(REAL, tmp_path, quick=True) == "no real rows come with the package"
    assert run_plan(SYNTHETIC, tmp_path, quick=True) is None
    runs = Runs(tmp_path)
    assert runs.is_quick
    assert runs[SYNTHETIC].card["data"]["name"] == "criteo-synthetic-test-randomised"
    assert pd.read_parquet(tmp_path / SYNTHETIC / RESAMPLES)["severity"].unique().tolist() == [0, 25, 95]
