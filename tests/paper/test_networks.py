"""Networks by name, and those with another eps."""

import pytest
import torch
from torch import nn

from predbn.evaluation import Model
from predbn.models import Classifier, ModelInfo, resnet20
from predbn.models.preprocessing import SIGNED
from predbn.paper import networks


@pytest.mark.parametrize("kind", ["instance", "layer", "group"])
def test_a_variant_is_the_same_network_with_another_eps(kind, monkeypatch):
    torch.manual_seed(0)
    network = resnet20(kind).eval()
    asked = []

    def load(reference: str) -> Classifier:
        asked.append(reference)
        return Classifier(network, ModelInfo(reference, 10, SIGNED))

    x = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    plain = load("plain")(x)
    monkeypatch.setattr(networks, "load", load)
    name = networks.reference_with_eps(f"zoo:resnet20-cifar10/{kind}/2", 0.1)
    (variant,) = networks.load_eps_variants((Model(name), Model("zoo:resnet20-cifar10/batch/0"))).values()
    assert name == f"zoo:resnet20-cifar10/{kind}[eps=0.1]/2"
    assert asked == ["plain", f"zoo:resnet20-cifar10/{kind}/2"]
    normalising = [m for m in variant.modules() if isinstance(m, nn.InstanceNorm2d | nn.GroupNorm)]
    assert {m.eps for m in normalising} == {0.1}
    assert not torch.allclose(variant(x), plain)


def test_missing_weights_are_named(monkeypatch):
    monkeypatch.setattr("predbn.models.zoo.names", lambda: ["resnet20-cifar10/batch/0"])
    assert networks.missing_weights(Model("zoo:resnet20-cifar10/batch/*")) is None
    assert networks.missing_weights(Model("zoo:resnet20-cifar10/group/1")) == "resnet20-cifar10/group/1"
    assert networks.missing_weights(Model("zoo:resnet20-cifar10/group[eps=0.1]/1")) == "resnet20-cifar10/group/1"
