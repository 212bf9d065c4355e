"""Evaluations on ImageNet and its variants, in small folders of the published layouts."""

import pytest
import torch

from predbn.data import DataError, class_mask, decoded_files, open_images, wnids
from predbn.evaluation import Plan, evaluate, unpack_hits
from predbn.models import restrict

from ..data.folders import make_folder
from . import tiny

CROP = tiny.PREPROCESSING.crop
MODELS = {"thousand": tiny.classifier(0, 1000)}
SMALL = {"models": "thousand", "shifts": ("clean", "contrast"), "severities": 5, "batch_sizes": 10, "images": 30}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("imagenet")
    make_folder(root / "val", wnids(), height=34, width=36)
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path_factory.getbasetemp() / "imagenet-cache"))


def test_pictures_are_decoded_once_for_all_splits(folders, tmp_path):
    told = []
    plan = Plan(data=f"imagenet:{folders / 'val'}", diagram_bins=100, hits=True, **SMALL)
    results = evaluate(plan, tmp_path / "run", models=MODELS, progress=lambda *now: told.append(now))
    assert (30, 30, "pictures decoded") in told, "the plan wants 30 of the 1,000"
    assert len(decoded_files()) == 1
    assert results.card["bins"] == 30
    assert results.card["data"]["benchmark"] == "ImageNet"
    assert set(results.reliability["bin"]) == set(range(100))
    assert {len(packed) for packed in results.hits["hits"]} == {4}
    by_bits = results.hits.set_index(["strategy", "corruption"])["hits"]
    for row in results.filter(metric="accuracy").frame.itertuples():
        assert unpack_hits(by_bits[row.strategy, row.corruption], 30).mean() == pytest.approx(row.value)
    assert results.mce().empty


def test_a_set_of_200_classes_is_scored_on_their_logits(tmp_path):
    make_folder(tmp_path / "a", wnids()[::5], height=32, width=32)
    plan = Plan(data=f"imagenet-a:{tmp_path / 'a'}", strategies="train", **{**SMALL, "shifts": "clean", "images": None})
    results = evaluate(plan, tmp_path / "run", models=MODELS)
    assert results.card["models"]["thousand"]["classes"] == 200
    images = open_images(plan.data, "test", transform=CROP)
    with torch.no_grad():
        right = restrict(MODELS["thousand"], class_mask(images.classes))(images.images).argmax(1) == images.labels
    value = results.filter(metric="accuracy").frame["value"].item()
    assert value == pytest.approx(right.double().mean().item())
    assert results.mce().empty


def test_a_model_of_the_sets_own_classes_is_left_as_it_is(tmp_path):
    make_folder(tmp_path / "r", wnids()[::5], height=32, width=32)
    plan = Plan(data=f"imagenet-r:{tmp_path / 'r'}", **{**SMALL, "models": "own", "shifts": "clean"})
    results = evaluate(plan, tmp_path / "run", models={"own": tiny.classifier(0, 200)})
    assert results.card["models"]["own"]["classes"] == 200


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("imagenet:{0}", "has no class folder of ImageNet such as n01440764, it has val: give the folder"),
        ("imagenet-c:{0}/val", "has no <corruption>/<severity> folders"),
    ],
)
def test_a_wrong_folder_is_named_before_anything_is_computed(folders, tmp_path, data, sentence):
    with pytest.raises(DataError, match=sentence):
        evaluate(Plan(data=data.format(folders), **SMALL), tmp_path / "run", models=MODELS)
    assert not (tmp_path / "run").exists()


def test_bins_are_the_papers_by_default():
    assert Plan(data="imagenet:x", models="m").ece_bins == 30
    assert Plan(data="imagenet:x", models="m", bins=15).ece_bins == 15
    assert Plan(models="m").ece_bins == 10
