from __future__ import annotations

import pytest
import torch

from predbn.models import Classifier, ModelInfo
from predbn.training.scoring import score

from .tiny import DEVICE, PREPROCESSING, small_resnet


@pytest.fixture
def classifier():
    torch.manual_seed(1)
    return Classifier(small_resnet(), ModelInfo("test", 10, PREPROCESSING))


@torch.no_grad()
def test_scores_are_those_of_all_images_at_once(classifier, images):
    scores = score(classifier, images, DEVICE, size=7)
    probabilities = classifier.eval()(images.images).softmax(1)
    chosen = probabilities[torch.arange(len(images)), images.labels]
    expected = {
        "accuracy": (probabilities.argmax(1) == images.labels).double().mean().item(),
        "nll": -chosen.log().mean().item(),
        "brier": (1 - 2 * chosen + probabilities.square().sum(1)).mean().item(),
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=2e-6)
    assert 0 <= scores["ece"] <= 1
    assert list(scores) == ["accuracy", "nll", "brier", "ece"]


def test_scoring_restores_the_precision(classifier, images):
    with torch.backends.cudnn.flags(allow_tf32=True):
        score(classifier, images, DEVICE)
        assert torch.backends.cudnn.allow_tf32
