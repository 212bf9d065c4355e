"""A model that cannot be adapted gives an error with the reason."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import predbn

from .models import net


def test_without_batch_norm_the_other_layers_are_listed():
    model = nn.Sequential(nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.GroupNorm(1, 3), nn.InstanceNorm2d(3))
    with pytest.raises(predbn.AdaptationError) as caught:
        predbn.adapt(model)
    message = str(caught.value)
    assert "2 GroupNorm, 1 InstanceNorm2d, 1 LayerNorm" in message
    assert "folded into the convolutions" in message
    with pytest.raises(predbn.AdaptationError, match="no normalisation layer at all"):
        predbn.adapt(nn.Linear(2, 2))


def test_a_folded_model_has_no_batch_norm():
    with pytest.raises(predbn.AdaptationError, match="already folded"):
        predbn.adapt(predbn.fold(net()))


def test_lazy_layers_must_have_seen_data():
    with pytest.raises(predbn.AdaptationError, match="'0' is a LazyBatchNorm2d that has not seen data"):
        predbn.adapt(nn.Sequential(nn.LazyBatchNorm2d()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_modules_are_refused():
    scripted = torch.jit.script(nn.Sequential(nn.BatchNorm2d(3)))
    with pytest.raises(predbn.AdaptationError, match="the model is a scripted module"):
        predbn.adapt(scripted)
    with pytest.raises(predbn.AdaptationError, match=r"'1\.0' is part of a scripted module"):
        predbn.adapt(nn.Sequential(nn.BatchNorm2d(3), scripted))


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


def test_not_a_module():
    with pytest.raises(predbn.AdaptationError, match=r"expected a torch.nn.Module, got dict"):
        predbn.adapt({})
