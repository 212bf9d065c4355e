"""Files whose batch norm was folded into convolutions: told in one sentence, mended with source data."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import predbn
import predbn.onnx

from .networks import images

SOURCE = [images(16, seed=seed) for seed in range(3)]
FOLDED = {"training": torch.onnx.TrainingMode.EVAL}


def with_source_statistics(model: nn.Module) -> nn.Module:
    """The stored statistics become those of the source data, which folding hides and measuring finds again."""
    population = predbn.adapt(model, "population", loader=SOURCE)
    statistics = predbn.state_dict(population)
    predbn.restore(model)
    model.train()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
            layer.reset_running_stats()
    assert statistics
    return model


@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "auto(passes=1)"])
def test_folded(strategy):
    pass
