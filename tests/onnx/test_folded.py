"""Files whose batch norm was folded into convolutions: told in one sentence, mended with source data."""

import copy
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import predbn
import predbn.onnx

from .networks import export, images, network
from .run import operators, predict

SOURCE = [images(8, seed=seed) for seed in range(2)]


@pytest.fixture(scope="module")
def folded(tmp_path_factory):
    """By family: a network whose stored statistics are those of the source data, and its file without batch norm.

    eps is negligible, because folding hides it. Biases of squeeze-and-excitation are those of a trained network.
    """

    @cache
    def make(family):
        model = network(family, eps=1e-12)
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Conv2d) and name.endswith(("fc1", "fc2")):
                nn.init.normal_(layer.bias, 0, 0.1)
        population = predbn.adapt(copy.deepcopy(model), "population", loader=SOURCE)
        (stream,) = predbn.state_dict(population)["streams"].values()
        for name, layer in model.named_modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean, layer.running_var = stream[name]["mean"], stream[name]["var"]
        path = tmp_path_factory.mktemp("folded") / "model.onnx"
        return model, export(model, path, training=torch.onnx.TrainingMode.EVAL)

    return make


def test_a_folded_file_is_told_in_one_sentence(folded, tmp_path):
    _, path = folded("unet")
    assert "BatchNormalization" not in operators(path)
    with pytest.raises(predbn.AdaptationError, match="folded into its 6 convolutions with a bias"):
        predbn.onnx.adapt(path, tmp_path / "out.onnx")
    with pytest.raises(predbn.AdaptationError, match="give loader="):
        predbn.onnx.adapt(path, tmp_path / "out.onnx", convolutions=True)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("family", "strategy"),
    [("unet", "batch"), ("unet", "prior(N=4)"), ("unet", "auto"), ("unet", "ema"), ("efficientnet", "batch")],
)
@torch.no_grad()
def test_statistics_behind_convolutions_are_those_of_the_batch_norm_that_was_folded(folded, family, strategy, tmp_path):
    model, path = copy.deepcopy(folded(family)[0]), folded(family)[1]
    description = predbn.onnx.adapt(path, tmp_path / "out.onnx", strategy, loader=SOURCE)
    assert len(description.layers) == sum(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
    predbn.calibrate(model, SOURCE)
    predbn.adapt(model, strategy)
    x = images(8, shifted=True)
    np.testing.assert_allclose(predict(tmp_path / "out.onnx", x.numpy()), model(x).numpy(), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_file_with_some_batch_norm_left(folded, tmp_path):
    """Batch norm in front of a convolution, as in DenseNet, cannot be folded."""
    model, path = copy.deepcopy(folded("densenet")[0]), folded("densenet")[1]
    assert "BatchNormalization" in operators(path)
    assert "Other convolutions with a bias: " in str(predbn.onnx.describe(path))
    predbn.onnx.adapt(path, tmp_path / "out.onnx", loader=SOURCE, convolutions=True)
    x = images(8, shifted=True)
    wanted = predbn.adapt(model)(x).numpy()
    np.testing.assert_allclose(predict(tmp_path / "out.onnx", x.numpy()), wanted, rtol=1e-4, atol=1e-4)


def test_the_output_of_a_head_is_left_alone(folded, tmp_path):
    _, path = folded("unet")
    description = predbn.onnx.adapt(path, tmp_path / "out.onnx", loader=SOURCE)
    assert [layer.operator for layer in description.layers] == ["Conv"] * 6
    assert not any("head" in layer.name for layer in description.layers)
