from __future__ import annotations

import pytest
import torch

from predbn.models import ModelError
from predbn.models.architectures import ARCHITECTURES, find_architecture
from predbn.models.normalisation import NORMALISATIONS
from predbn.models.preprocessing import CAFFE, SIGNED


def test_every_normalisation_of_resnet20_and_resnet50():
    small = [f"resnet20-cifar10/{norm}" for norm in NORMALISATIONS]
    assert list(ARCHITECTURES) == [*small, "resnet50-v1", "resnet50-imagenet/batch"]
    assert {architecture.preprocessing for name, architecture in ARCHITECTURES.items() if "resnet20" in name} == {
        SIGNED
    }
    assert find_architecture("resnet50-v1").preprocessing == CAFFE


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if "resnet20" in name])
@torch.no_grad()
def test_built_networks_have_the_stated_classes(name):
    architecture = find_architecture(name)
    logits = architecture.build().eval()(torch.zeros(2, 3, *architecture.preprocessing.size))
    assert logits.shape == (2, architecture.classes)


def test_an_unknown_name_is_answered_with_the_most_similar():
    with pytest.raises(ModelError, match=r"no architecture 'resnet50-v2'.*did you mean 'resnet50-v1'\?"):
        find_architecture("resnet50-v2")
    with pytest.raises(
        ModelError, match=r"choose from resnet20-cifar10/batch, .*, resnet50-v1, resnet50-imagenet/batch\.$"
    ):
        find_architecture("?")
