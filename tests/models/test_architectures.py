from __future__ import annotations

import pytest
import torch

from predbn.models import ModelError
from predbn.models.architectures import ARCHITECTURES, find_architecture
from predbn.models.normalisation import NORMALISATIONS
from predbn.models.preprocessing import CAFFE, SIGNED


@torch.no_grad()
def test_every_normalisation_of_resnet20_and_resnet50():
    small = [f"resnet20-cifar10/{norm}" for norm in NORMALISATIONS]
    assert list(ARCHITECTURES) == [*small, "resnet50-v1", "resnet50-imagenet/batch"]
    assert find_architecture("resnet50-v1").preprocessing == CAFFE
    for name in small:
        architecture = find_architecture(name)
        assert architecture.preprocessing == SIGNED
        assert architecture.build().eval()(torch.zeros(2, 3, 32, 32)).shape == (2, architecture.classes)


def test_an_unknown_name_is_answered_with_the_most_similar():
    with pytest.raises(
        ModelError, match=r"'resnet50-v2'.*did you mean 'resnet50-v1'\?\): choose from resnet20-cifar10/b"
    ):
        find_architecture("resnet50-v2")
