from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest
import torch

from predbn.data import Images
from predbn.models import Classifier, Description
from predbn.training import card

from .tiny import DEVICE, PICTURES, TINY, small_resnet


@pytest.fixture
def classifier():
    torch.manual_seed(1)
    return Classifier(small_resnet(), Description("here", 10, PICTURES))


@torch.no_grad()
def test_scores_are_those_of_all_images_at_once(classifier, images):
    found = card.score(classifier, images, size=7)
    probabilities = classifier.eval()(images.images).softmax(1)
    chosen = probabilities[torch.arange(len(images)), images.labels]
    wanted = {
        "accuracy": (probabilities.argmax(1) == images.labels).double().mean().item(),
        "nll": -chosen.log().mean().item(),
        "brier": (1 - 2 * chosen + probabilities.square().sum(1)).mean().item(),
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, abs=2e-6)
    assert 0 <= found["ece"] <= 1
    assert list(found) == ["accuracy", "nll", "brier", "ece"]


def test_precision_is_as_it_was_afterwards(classifier, images):
    with torch.backends.cudnn.flags(allow_tf32=True):
        card.score(classifier, images)
        assert torch.backends.cudnn.allow_tf32


def make(images: Images, recipe=TINY):
    parts = {"train": images.take(16), "validation": images.take(range(16, 20)), "test": images}
    scores = {"accuracy": 0.5, "nll": 1.0, "brier": 0.7, "ece": 0.1}
    return card.make(recipe, 3, DEVICE, data=parts, validation_accuracy=0.123456, test_scores=scores)


def test_a_card_says_what_one_needs_to_repeat_it(images):
    found = json.loads(json.dumps(make(images)))
    assert (found["architecture"], found["seed"], found["device"]) == ("resnet20-cifar10/batch", 3, "cpu")
    assert found["recipe"] == {"optimiser": "Adam", **TINY.describe()}
    assert found["data"]["test"] == images.sums
    assert found["trained_on"] == f"{images.name}: 16 images"
    assert found["validated_on"] == f"{images.name}: 4 images"
    assert found["test"] == {"images": 20, "accuracy": 0.5, "nll": 1.0, "brier": 0.7, "ece": 0.1}
    assert found["validation_accuracy"] == 0.1235
    assert found["software"]["torch"] == torch.__version__
    assert make(images, replace(TINY, decoupled=True))["recipe"]["optimiser"] == "AdamW"


def git(folder, *arguments):
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_that_of_the_checkout_that_the_file_is_part_of(tmp_path):
    mine, installed = tmp_path / "mine.py", tmp_path / "installed.py"
    mine.write_text("")
    assert card.commit(mine) is None
    git(tmp_path, "init")
    git(tmp_path, "add", "mine.py")
    git(tmp_path, "commit", "-m", "first")
    installed.write_text("")
    assert card.commit(mine) == git(tmp_path, "rev-parse", "HEAD")
    assert card.commit(installed) is None
    mine.write_text("changed")
    assert card.commit(mine) == git(tmp_path, "rev-parse", "HEAD") + "-dirty"
    assert card.commit(tmp_path / "absent" / "x.py") is None
