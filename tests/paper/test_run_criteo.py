"""K1 run with a folder of the user, and quickly on its own; and the bootstrap over rows and networks."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from predbn.common import PaperError
from predbn.data.criteo import Randomised, Rows, criteo, prepare, prepare_synthetic, synthetic_rows
from predbn.models import ClickModel, CriteoNetwork, CriteoSizes
from predbn.paper import EXPERIMENTS, PLANS, Runs, run_criteo, verify
from predbn.paper.claims import Verdict
from predbn.paper.experiments.criteo_randomised_features import scores_of
from predbn.paper.plans.criteo import LARGER_EPS, LATER, REAL, SYNTHETIC, UNSETTLED
from predbn.paper.run import run_plan
from predbn.paper.run_criteo import RESAMPLES_FILE, resample, weighted_auc
from predbn.training import CriteoData, CriteoRecipe, train_criteo

from ..data.criteo.examples import write_lines

SIZES = CriteoSizes(widths=(8,)).limited(buckets=50, dimensions=2)
RECIPE = CriteoRecipe(batch_size=256, epochs=1, learning_rate=1e-2, norm_momentum=0.2, sizes=SIZES)


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
    """Rows that are marked as real, later rows, and three networks; no synthetic rows, no unsettled networks."""
    place = tmp_path_factory.mktemp("criteo")
    for name, count, seed in (("rows", 4000, 0), ("later", 300, 1)):
        write_lines(place / f"{name}.txt", count, seed=seed)
        prepare(place / f"{name}.txt", place / name)
    sets = CriteoData(*(criteo(part, place / "rows") for part in ("train", "validation", "test")))
    train_criteo(RECIPE, (0, 1, 2), sets, place)
    return place


def test_plans_with_data_run_and_the_others_say_what_is_missing(root, tmp_path):
    results = tmp_path / "results" / "criteo"
    gaps = {name: run_plan(name, results, root=root) for name in EXPERIMENTS["K1"].plans}
    assert gaps[REAL] is None
    assert gaps[LATER] is None
    assert gaps[LARGER_EPS] is None
    assert "unsettled/criteo-mlp has no networks" in gaps[UNSETTLED]
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
    assert [panel.name for panel in EXPERIMENTS["K1"].figures(runs)] == [REAL]
    beside = Runs(tmp_path / "results" / "cifar10")
    assert beside.measured == [REAL, LATER, LARGER_EPS]
    assert beside.folders[:2] == [tmp_path / "results" / "cifar10", results]


def test_intervals_are_around_the_values(root, tmp_path):
    run_plan(REAL, tmp_path, root=root)
    runs = Runs(tmp_path)
    for metric in ("auc", "brier"):
        spread = scores_of(runs, REAL)[metric]
        assert spread.resampled
        means, drawn = spread.means.iloc[0], spread.values.mean()
        assert (means[drawn.index] - drawn).abs().max() < 4e-3
    (tmp_path / REAL / RESAMPLES_FILE).unlink()
    alone = scores_of(runs, REAL)["auc"]
    assert (alone.count, alone.over, alone.resampled) == (3, "networks", False)


def test_synthetic_rows_do_not_pass_for_real_ones(root, tmp_path):
    prepare_synthetic(1000, tmp_path / "rows")
    (tmp_path / "criteo-mlp").symlink_to(root / "criteo-mlp")
    with pytest.raises(PaperError, match="has criteo-synthetic-train: real rows belong in rows"):
        run_plan(REAL, tmp_path / "results", root=tmp_path)


def test_a_quick_run_generates_synthetic_rows_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(run_criteo, "_QUICK_ROWS", 2_000)
    monkeypatch.setattr(run_criteo, "_QUICK_RECIPE", RECIPE)
    assert run_plan(REAL, tmp_path, quick=True) == "no real rows come with the package"
    assert run_plan(SYNTHETIC, tmp_path, quick=True) is None
    runs = Runs(tmp_path)
    assert runs.is_quick
    assert runs[SYNTHETIC].card["data"]["name"] == "criteo-synthetic-test-randomised"
    assert pd.read_parquet(tmp_path / SYNTHETIC / RESAMPLES_FILE)["severity"].unique().tolist() == [0, 25, 95]


TABLE = torch.from_numpy(synthetic_rows(300, seed=0).table)
TINY_SIZES = CriteoSizes(widths=(8,)).limited(buckets=20, dimensions=2)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_the_weighted_auc_is_that_of_repeated_rows(seed, levels):
    random = np.random.default_rng(seed)
    scores, labels = random.integers(0, levels, 30) / levels, np.arange(30) % 2
    weights = random.integers(0, 4, (3, 30)) + (np.arange(30) < 2)
    expected = [roc_auc_score(np.repeat(labels, w), np.repeat(scores, w)) for w in weights]
    assert weighted_auc(scores, labels, weights.astype(float)) == pytest.approx(expected)


def test_resamples_have_the_right_mean_and_width():
    torch.manual_seed(0)
    models = {f"m/{k}": ClickModel(CriteoNetwork(TINY_SIZES)).eval() for k in range(2)}
    data = Randomised(Rows(TABLE, "rows"), block=100)
    table = resample(
        data, models, [("clean", 0), ("tokens", 50)], strategies=("train", "batch"), batch_size=100, seeds=(0, 1)
    )
    assert len(table) == 2 * 2 * 2 * 1000
    clicks = np.stack([model(TABLE[:, 1:]).softmax(1)[:, 1].detach().double().numpy() for model in models.values()])
    labels = TABLE[:, 0].numpy()
    for metric, value, error in (
        ("auc", np.mean([roc_auc_score(labels, each) for each in clicks]), None),
        ("brier", np.mean(2 * (clicks - labels) ** 2), (2 * (clicks - labels) ** 2).mean(0).std() / 300**0.5),
    ):
        chosen = table[(table.metric == metric) & (table.corruption == "clean") & (table.strategy == "train")]["value"]
        assert chosen.mean() == pytest.approx(value, abs=4 * chosen.std() / 1000**0.5 + 1e-3)
        between = np.std([(2 * (each - labels) ** 2).mean() for each in clicks]) / 2**0.5
        if error is not None:
            assert chosen.std() == pytest.approx(np.hypot(error, between), rel=0.15)


def test_draws_are_shared_by_strategies():
    torch.manual_seed(0)
    models = {"m": ClickModel(CriteoNetwork(TINY_SIZES)).eval()}
    data = Randomised(Rows(TABLE, "rows"))
    one, other = (
        resample(data, models, [("clean", 0)], strategies=("train",), batch_size=size, seeds=(0,)) for size in (50, 300)
    )
    assert one["value"].to_numpy() == pytest.approx(other["value"].to_numpy(), abs=1e-6)
