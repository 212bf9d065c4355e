"""Files that torch's exporters wrote predict as the same model does after `predbn.adapt`."""

import copy
from functools import cache

import numpy as np
import pytest
import torch

import predbn
import predbn.onnx

from .networks import FAMILIES, export, images, network
from .run import operators, predict

SOURCE = [images(16, seed=seed) for seed in range(2)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A network and its file, by family and exporter."""

    @cache
    def make(family, dynamo):
        model = network(family)
        return model, export(model, tmp_path_factory.mktemp("onnx") / "model.onnx", dynamo=dynamo)

    return make


@pytest.mark.parametrize(
    ("family", "dynamo", "strategy"),
    [*((family, False, "auto") for family in FAMILIES), ("unet", True, "prior(N=4)"), ("resnet", True, "batch")],
)
@torch.no_grad()
def test_an_adapted_file_predicts_as_the_adapted_model(exported, family, dynamo, strategy, tmp_path):
    model, path = exported(family, dynamo)
    model = copy.deepcopy(model)
    assert "BatchNormalization" in operators(path)
    out, x = tmp_path / "out.onnx", images(7, seed=7, shifted=True)
    plain = model(x)
    is_calibrated = "auto" in strategy
    predbn.onnx.adapt(path, out, strategy, loader=SOURCE if is_calibrated else None)
    assert "BatchNormalization" not in operators(out)
    if is_calibrated:
        predbn.calibrate(model, SOURCE)
    expected = predbn.adapt(model, strategy)(x)
    np.testing.assert_allclose(predict(out, x.numpy()), expected.numpy(), rtol=1e-4, atol=1e-4)
    assert strategy != "batch" or not torch.allclose(expected, plain, atol=0.1)


@pytest.mark.parametrize("opset", [9, 11, 12])
@torch.no_grad()
def test_early_opsets_are_converted(opset, tmp_path):
    model, x = network("mobilenet"), images(7, shifted=True)
    path = export(model, tmp_path / "model.onnx", opset_version=opset)
    assert predbn.onnx.describe(path).opset == opset
    assert predbn.onnx.adapt(path, tmp_path / "out.onnx").opset == 13
    expected = predbn.adapt(model)(x)
    np.testing.assert_allclose(predict(tmp_path / "out.onnx", x.numpy()), expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opset", [12, 17])
@torch.no_grad()
def test_a_file_exported_in_training_mode_is_set_to_inference(opset, tmp_path):
    """Its dropout does nothing, and the layers that are not adapted use their stored statistics."""
    model, x = network("mobilenet"), images(7, shifted=True)
    for layer in model.modules():
        layer.momentum = 0.0  # the exporter calls the model, which must not change it
    training = torch.onnx.TrainingMode.TRAINING
    path = export(model.train(), tmp_path / "model.onnx", opset_version=opset, training=training)
    assert "Dropout" in operators(path)
    predbn.onnx.adapt(path, tmp_path / "out.onnx", "auto", loader=SOURCE, layers="first")
    predbn.calibrate(model.eval(), SOURCE)
    expected = predbn.adapt(model, "auto", layers="first")(x)
    np.testing.assert_allclose(predict(tmp_path / "out.onnx", x.numpy()), expected.numpy(), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_robust_moments_leave_out_an_example_that_is_not_finite(exported, tmp_path):
    _, path = exported("unet", False)
    predbn.onnx.adapt(path, tmp_path / "out.onnx", "auto", loader=SOURCE)
    x = images(6, shifted=True)
    without = predict(tmp_path / "out.onnx", x[1:].numpy())
    x[0, 0, 0, 0] = float("nan")
    np.testing.assert_allclose(predict(tmp_path / "out.onnx", x.numpy())[1:], without, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_single_precision_statistics_of_a_half_precision_file(tmp_path):
    model = network("mobilenet").half()
    path = export(model, tmp_path / "model.onnx", example=images(4).half())
    predbn.onnx.adapt(path, tmp_path / "out.onnx", "prior(N=4)")
    predbn.adapt(model, "prior(N=4)")
    x = 100 * images(8, shifted=True)  # squares of the first maps are beyond half precision
    y = predict(tmp_path / "out.onnx", x.half().numpy())
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, model(x.half()).float().numpy(), rtol=0.02, atol=0.02)
