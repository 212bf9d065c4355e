"""Plans carried out on a handful of images."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from predbn.evaluation import Plan
from predbn.models import zoo
from predbn.paper import PLANS, PaperError, Runs, run_plans
from predbn.paper.plans import PaperPlan
from predbn.paper.run import run_plan

pytestmark = pytest.mark.skipif("resnet20-cifar10/batch/0" not in zoo.names(), reason="the zoo has no networks here")

NETWORK = "zoo:resnet20-cifar10/batch/0"


def tiny(name: str, **changes: object) -> PaperPlan:
    small = {"data": "sample", "images": 16, "batch_sizes": (8,), "severities": (5,), "shifts": ("clean", "fog")}
    plan = Plan(models=(NETWORK,), **{**small, **changes})  # type: ignore[arg-type]
    return PaperPlan(name, "a handful of images", plan, plan)


def test_a_run_can_be_continued_and_says_on_its_card_that_it_is_quick(tmp_path, monkeypatch):
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", strategies=("train",)))
    told = []
    assert run_plans(["strategies"], tmp_path, quick=True, progress=lambda name: lambda *now: told.append(now)) == {}
    assert told[-1][:2] == (2, 2)
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", strategies=("train", "batch")))
    run_plan("strategies", tmp_path, quick=True)
    runs = Runs(tmp_path)
    assert set(runs["strategies"].frame["strategy"]) == {"train", "batch"}
    assert runs.is_quick
    card = json.loads((tmp_path / "strategies" / "card.json").read_text())
    assert card["paper"]["quick"] is True
    assert "no evidence" in card["paper"]["warning"]


def test_quick_and_full_results_do_not_mix(tmp_path, monkeypatch):
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", strategies=("train",)))
    run_plan("strategies", tmp_path, quick=True)
    with pytest.raises(PaperError, match="holds quick results, and full ones are asked for"):
        run_plan("strategies", tmp_path)


def test_networks_that_are_not_here_are_left_out_and_named(tmp_path, monkeypatch):
    plan = tiny("strategies", strategies=("train",))
    models = (*plan.quick.models, *Plan(models=("zoo:resnet20-cifar10/nothing/0",)).models)
    both = PaperPlan("strategies", "", plan.full, replace(plan.quick, models=models))
    monkeypatch.setitem(PLANS, "strategies", both)
    assert run_plan("strategies", tmp_path, quick=True) == "the zoo has no resnet20-cifar10/nothing/0"
    assert set(Runs(tmp_path)["strategies"].frame["model"]) == {NETWORK}
    none = PaperPlan("strategies", "", plan.full, replace(plan.quick, models=models[1:]))
    monkeypatch.setitem(PLANS, "strategies", none)
    assert run_plan("strategies", tmp_path / "other", quick=True) == "the zoo has no resnet20-cifar10/nothing/0"
    assert Runs(tmp_path / "other").measured == []
