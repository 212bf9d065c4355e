"""The zoo as it is delivered, whatever is in it, and as it could be."""

import hashlib

import pytest
import torch

from predbn.models import ModelError, load, zoo
from predbn.models.architectures import ARCHITECTURES
from predbn.models.weights import compact

NAMES = zoo.names()
COUNT = 200


@pytest.mark.parametrize("name", {name.rpartition("/")[0]: name for name in NAMES}.values())
@torch.no_grad()
def test_the_accuracy_on_the_sample_is_the_cards(name, embedded_test):
    images = embedded_test.take(range(0, 2000, 2000 // COUNT)).take(COUNT)
    model = load(f"zoo:{name}")
    correct = sum(int((model(b.images).argmax(1) == b.labels).sum()) for b in images.batches(250))
    accuracy = model.info.card["test"]["accuracy"]
    assert accuracy > 0.5
    error = (accuracy * (1 - accuracy) / len(images)) ** 0.5
    assert abs(correct / len(images) - accuracy) < 4 * error


@pytest.mark.parametrize("name", NAMES)
def test_cards_and_weights_belong_to_the_name(name):
    architecture, _, seed = name.rpartition("/")
    card = zoo.card(name)
    assert (card["architecture"], str(card["seed"])) == (architecture, seed)
    assert card["recipe"]["norm"] == architecture.split("/")[1]
    assert architecture in ARCHITECTURES
    assert "predbn-sha256:" in (zoo.ZOO / f"{name}.json").read_text()
    weights = (zoo.ZOO / f"{name}.safetensors").read_bytes()
    assert card["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    stored = zoo.weights(name)
    again = compact(stored)
    assert all(t.isfinite().all() and torch.equal(t, again[n]) for n, t in stored.items())


def test_names_are_in_the_order_of_seeds_and_patterns_select_them(small_zoo):
    assert zoo.names() == ["resnet20-cifar10/batch/2", "resnet20-cifar10/batch/10", "resnet20-cifar10/layer/0"]
    assert zoo.matching("resnet20-cifar10/*/*") == zoo.names()
    assert zoo.matching("*/batch/*") == zoo.names()[:2]
    assert zoo.matching("resnet20-cifar10/layer/0") == zoo.names()[2:]


def test_missing_networks_and_cards(small_zoo, monkeypatch):
    with pytest.raises(
        ModelError, match=r"^The zoo has no 'resnet20-cifar10/batch/3': it has resnet20-cifar10/batch/\*, resnet20"
    ):
        zoo.matching("resnet20-cifar10/batch/3")
    with pytest.raises(ModelError, match=r"stands for 2 networks: name one, such as zoo:resnet20-cifar10/batch/2\."):
        zoo.weights("resnet20-cifar10/batch/*")
    with pytest.raises(ModelError, match=r"The card of zoo:resnet20-cifar10/layer/0 cannot be read"):
        zoo.card("resnet20-cifar10/layer/0")
    monkeypatch.setattr(zoo, "ZOO", small_zoo / "absent")
    assert zoo.names() == []
    with pytest.raises(ModelError, match="it has no networks at all"):
        zoo.matching("*")
