"""A model that cannot be adapted gives an error with the reason."""

import pytest
import torch
from torch import nn

import predbn

from .models import images, net


def scripted() -> nn.Module:
    return torch.jit.script(nn.Sequential(nn.BatchNorm2d(3)))


OTHERS = nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.GroupNorm(1, 3), nn.InstanceNorm2d(3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (dict, "expected a torch.nn.Module, got dict"),
        (lambda: nn.Linear(2, 2), "no normalisation layer at all"),
        (lambda: nn.Sequential(*OTHERS), "2 GroupNorm, 1 InstanceNorm2d, 1 LayerNorm.*folded into the convolutions"),
        (lambda: predbn.fold(net(), example=images()), "already folded"),
        (lambda: nn.Sequential(nn.LazyBatchNorm2d()), "'0' is a LazyBatchNorm2d that has not seen data"),
        (scripted, "the model is a scripted module"),
        (lambda: nn.Sequential(nn.BatchNorm2d(3), scripted()), r"'1\.0' is part of a scripted module"),
    ],
)
def test_the_reason_is_named(make, message):
    with pytest.raises(predbn.AdaptationError, match=message):
        predbn.adapt(make())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantised_layers_are_refused():
    quantised = pytest.importorskip("torch.ao.nn.quantized")
    with pytest.raises(predbn.AdaptationError, match=r"'0' is torch.ao.nn.quantized.*BatchNorm2d"):
        predbn.adapt(nn.Sequential(quantised.BatchNorm2d(3), nn.BatchNorm2d(3)))
    qat = pytest.importorskip("torch.ao.nn.intrinsic.qat")
    from torch.ao.quantization import get_default_qat_qconfig

    fused = qat.ConvBn2d(3, 3, 1, qconfig=get_default_qat_qconfig())
    with pytest.raises(predbn.AdaptationError, match="ConvBn2d"):
        predbn.adapt(nn.Sequential(fused, nn.BatchNorm2d(3)))
