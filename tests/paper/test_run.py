"""Plans run on a few images."""

import json
import shutil
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from predbn.common import PaperError, lock_folder, write_json
from predbn.data import sample
from predbn.evaluation import Plan
from predbn.models import zoo
from predbn.paper import PLANS, Runs, TrainedNetworks
from predbn.paper.crops import border_of, crop_like_training
from predbn.paper.plans import PaperPlan
from predbn.paper.run import run_plan
from predbn.training import draw_crops

needs_zoo = pytest.mark.skipif("resnet20-cifar10/batch/0" not in zoo.names(), reason="the zoo has no networks here")

NETWORK = "zoo:resnet20-cifar10/batch/0"


def tiny(name: str, **changes: object) -> PaperPlan:
    small = {"data": "sample", "images": 16, "batch_sizes": (8,), "severities": (5,), "shifts": ("clean", "fog")}
    plan = Plan(**{"models": (NETWORK,), **small, **changes})  # type: ignore[arg-type]
    return PaperPlan(name, "a few images", plan, plan)


@needs_zoo
def test_a_run_can_be_continued_and_says_on_its_card_that_it_is_quick(tmp_path, monkeypatch):
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", strategies=("train",)))
    calls = []
    assert run_plan("strategies", tmp_path, quick=True, progress=lambda *now: calls.append(now)) is None
    assert calls[-1][:2] == (2, 2)
    with pytest.raises(PaperError, match="has quick results, but this is a full run"):
        run_plan("strategies", tmp_path)
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", strategies=("train", "batch")))
    locked = []

    def write_locked(path, card):
        with pytest.raises(PaperError), lock_folder(path.parent, error=PaperError):
            pass
        locked.append(path.name)
        write_json(path, card)

    monkeypatch.setattr("predbn.paper.run.write_json", write_locked)
    run_plan("strategies", tmp_path, quick=True)
    assert locked == ["card.json"]
    runs = Runs(tmp_path)
    assert set(runs["strategies"].frame["strategy"]) == {"train", "batch"}
    assert runs.is_quick
    card = json.loads((tmp_path / "strategies" / "card.json").read_text())
    assert card["paper"]["quick"] is True
    assert "no evidence" in card["paper"]["warning"]


@needs_zoo
def test_a_folder_of_networks_in_place_of_the_zoo(tmp_path, monkeypatch):
    """The zoo has the layout of a folder of trained networks, so such a folder must give the same results."""
    models = (f"{NETWORK[:-1]}*", "zoo:resnet20-cifar10/instance[eps=0.1]/1", "zoo:resnet20-cifar10/nothing/0")
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", models=models, strategies=("train",)))
    folder = tmp_path / "trained"
    for kind, seed, suffix in product(("batch", "instance"), (1, 2), (".safetensors", ".json")):
        path = folder / "resnet20-cifar10" / kind / f"{seed}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(zoo.ZOO / path.relative_to(folder), path)
    networks = TrainedNetworks(folder)
    assert run_plan("strategies", tmp_path / "folder", quick=True, networks=networks) is None
    names = [f"{NETWORK[:-1]}{seed}" for seed in (1, 2)]
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", models=(*names, models[1]), strategies=("train",)))
    run_plan("strategies", tmp_path / "zoo", quick=True)
    keys = ["model", "strategy", "corruption", "severity", "metric"]
    found, expected = (
        Runs(tmp_path / where)["strategies"].frame.set_index(keys)["value"].to_dict() for where in ("folder", "zoo")
    )
    assert {key[0] for key in found} == {*names, models[1]}
    assert found == expected
    reason = run_plan("strategies", tmp_path / "out", quick=True, networks=TrainedNetworks(tmp_path))
    assert reason.startswith(f"{tmp_path} has no resnet20-cifar10/batch/1")
    card = json.loads((tmp_path / "folder" / "strategies" / "card.json").read_text())
    assert card["ensembles"] == {models[0]: names}
    assert card["models"][names[0]]["card"] == zoo.card("resnet20-cifar10/batch/1")
    assert f"--networks {folder}" in card["paper"]["command"]


@needs_zoo
def test_missing_networks_are_left_out_and_named(tmp_path, monkeypatch):
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


@pytest.fixture
def bare_machine(tmp_path, monkeypatch):
    """No data, no optional packages, and paths to weights that do not exist."""
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PREDBN_IMAGENET", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PREDBN_RESNET50", str(tmp_path / "nowhere.safetensors"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PLANS, "strategies", tiny("strategies", strategies=("train",)))


@needs_zoo
def test_missing_data_of_one_plan_does_not_stop_the_others(bare_machine, tmp_path):
    without_data = (
        "methods",
        "normalisations",
        "inside-crops",
        "lite0-methods",
        "resnet50-methods",
        "criteo-synthetic",
    )
    left_out = {name: run_plan(name, tmp_path / "results") for name in without_data}
    assert run_plan("strategies", tmp_path / "results") is None
    assert 'run `pip install "predbn[lite]"`' in left_out["lite0-methods"]
    assert "nowhere.safetensors" in left_out["resnet50-methods"]
    assert "has no prepared rows" in left_out["criteo-synthetic"]
    assert all("predbn data cifar10" in left_out[name] for name in ("methods", "normalisations", "inside-crops"))
    assert Runs(tmp_path / "results").measured == ["strategies"]


@pytest.mark.parametrize(
    ("padding", "border", "mode"), [(4, "zero", "constant"), (4, "edge", "edge"), (2, "reflect", "reflect")]
)
def test_crops_are_those_of_training(padding, border, mode):
    """Compared with slicing one image at a time."""
    images = sample("test").take(20)
    cropped = crop_like_training(images, padding, border)
    crops = draw_crops(20, 20, seed=0, epoch=0, padding=padding)
    for number, image in enumerate(images.images.numpy()):
        top, left = crops.corner[0][number].tolist()
        expected = np.pad(image, ((0, 0), (padding,) * 2, (padding,) * 2), mode=mode)[
            :, top : top + 32, left : left + 32
        ]
        if crops.mirrored[0][number]:
            expected = expected[..., ::-1]
        np.testing.assert_array_equal(cropped.images[number].numpy(), expected)
    assert torch.equal(cropped.labels, images.labels)
    assert torch.equal(cropped.index, images.index)


def test_the_border_is_that_of_the_networks_own_training():
    assert border_of({"recipe": {"padding": 2, "border": "reflect"}}) == (2, "reflect")
    assert border_of({}) == (4, "zero")
