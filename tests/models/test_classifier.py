import pytest
import torch
from torch import nn

import predbn
from predbn.data import ClassMask
from predbn.models import Classifier, ModelError, ModelInfo, Preprocessing, resnet20, restrict
from predbn.models.preprocessing import SIGNED

from .networks import pictures, scrambled


@pytest.fixture
def classifier() -> Classifier:
    return Classifier(scrambled(resnet20()), ModelInfo("here", 10, SIGNED)).eval()


@torch.no_grad()
def test_pictures_in_logits_out(classifier):
    images = pictures(3)
    torch.testing.assert_close(classifier(images), classifier.network(images.double().float() / 127.5 - 1))
    assert classifier.double()(images).dtype == torch.float64
    assert "here" in repr(classifier)


SMALL = Preprocessing((8, 8), (127.5,) * 3, (127.5,) * 3)


def small_classifier(classes: int = 6) -> Classifier:
    network = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network.append(nn.Linear(5, classes))
    return Classifier(network, ModelInfo("made:net", classes, SMALL)).eval()


@torch.no_grad()
def test_the_logits_that_count_come_out():
    model = small_classifier()
    masked = restrict(model, ClassMask((4, 0, 5), 6))
    images = torch.randint(256, (7, 3, 8, 8), dtype=torch.uint8)
    assert torch.equal(masked(images), model(images)[:, [4, 0, 5]])
    assert (masked.info.classes, masked.info.reference) == (3, "made:net")
    assert not masked.training


@torch.no_grad()
def test_layers_keep_their_names_and_the_network_is_shared():
    model = small_classifier()
    masked = restrict(model, ClassMask((1, 2), 6))
    assert masked.network is model.network
    assert masked.state_dict().keys() == model.state_dict().keys()
    assert [name for name, _ in masked.named_modules()] == [name for name, _ in model.named_modules()]
    images = torch.randint(256, (7, 3, 8, 8), dtype=torch.uint8)
    with predbn.adapted(masked, "batch", layers="network.1"):
        assert torch.equal(masked(images), model(images)[:, [1, 2]])
    assert restrict(model.double(), ClassMask((1, 2), 6)).positions.dtype == torch.int64


def test_all_classes_are_no_restriction():
    model = small_classifier()
    assert restrict(model, ClassMask(tuple(range(6)), 6)) is model


def test_a_model_with_other_classes_is_an_error():
    with pytest.raises(ModelError, match="made:net has 6 classes, but the data's 2 are some of 1000: choose"):
        restrict(small_classifier(), ClassMask((1, 2), 1000))
