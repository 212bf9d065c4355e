from __future__ import annotations

import pytest
import torch

import predbn
from predbn.models import Classifier, Description, ModelError, resnet20
from predbn.models.preprocessing import SIGNED

from .networks import pictures, scrambled


@pytest.fixture
def classifier() -> Classifier:
    return Classifier(scrambled(resnet20()), Description("here", 10, SIGNED)).eval()


@torch.no_grad()
def test_pictures_in_logits_out(classifier):
    images = pictures(3)
    torch.testing.assert_close(classifier(images), classifier.network(images.double().float() / 127.5 - 1))


def test_pictures_that_are_prepared_already_are_refused(classifier):
    with pytest.raises(ModelError, match="uint8"):
        classifier(pictures().float() / 127.5 - 1)


def test_the_state_dict_is_the_networks(classifier):
    assert list(classifier.state_dict()) == [f"network.{name}" for name in classifier.network.state_dict()]


@torch.no_grad()
def test_it_is_adapted_as_any_module(classifier):
    images = pictures(8)
    before = classifier(images)
    predbn.adapt(classifier)
    assert not torch.allclose(classifier(images), before)
    predbn.restore(classifier)
    assert torch.equal(classifier(images), before)


@torch.no_grad()
def test_precision_and_device_move_as_a_whole(classifier):
    images = pictures()
    logits = classifier.double()(images)
    assert logits.dtype == torch.float64
    assert "here" in repr(classifier)
