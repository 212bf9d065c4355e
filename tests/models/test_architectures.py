from __future__ import annotations

import pytest
import torch

from predbn.models import ModelError
from predbn.models.architectures import ARCHITECTURES, find
from predbn.models.normalisation import NORMALISATIONS
from predbn.models.preprocessing import CAFFE, SIGNED


def test_every_normalisation_of_resnet20_and_resnet50():
    small = [f"resnet20-cifar10/{norm}" for norm in NORMALISATIONS]
    assert list(ARCHITECTURES) == [*small, "resnet50-v1", "resnet50-imagenet/batch"]
    assert {entry.preprocessing for name, entry in ARCHITECTURES.items() if "resnet20" in name} == {SIGNED}
    assert find("resnet50-v1").preprocessing == CAFFE


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if "resnet20" in name])
@torch.no_grad()
def test_what_is_built_is_what_is_said(name):
    entry = find(name)
    logits = entry.build().eval()(torch.zeros(2, 3, *entry.preprocessing.size))
    assert logits.shape == (2, entry.classes)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ModelError, match=r"no architecture 'resnet50-v2'.*did you mean 'resnet50-v1'\?"):
        find("resnet50-v2")
    with pytest.raises(
        ModelError, match=r"there are resnet20-cifar10/batch, .*, resnet50-v1, resnet50-imagenet/batch\.$"
    ):
        find("?")
