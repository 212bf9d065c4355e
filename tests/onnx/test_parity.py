"""The equations in nodes against the PyTorch implementation: one layer with random parameters, on random inputs."""

import numpy as np
import pytest
import torch
from torch import nn

import predbn
import predbn.onnx

from .graphs import batch_norm_node, make_model, save
from .run import load

CHANNELS = 5
SIZES = (1, 2, 3, 9, 40)


def draw(random: np.random.Generator, n: int, *, outliers: int = 0) -> torch.Tensor:
    """Maps whose channels and examples differ in mean and scale."""
    mean, scale = random.normal(0, 1, (n, CHANNELS, 1, 1)), random.lognormal(0, 0.5, (n, CHANNELS, 1, 1))
    x = random.normal(0, 1, (n, CHANNELS, 3, 4)) * scale + mean + random.normal(0, 3, (1, CHANNELS, 1, 1))
    x[:outliers] *= 20
    return torch.from_numpy(x.astype(np.float32))


def layer_and_file(random: np.random.Generator, path) -> tuple[nn.BatchNorm2d, object]:
    values = {
        "scale": random.normal(1, 0.5, CHANNELS),
        "bias": random.normal(0, 1, CHANNELS),
        "mean": random.normal(0, 2, CHANNELS),
        "var": random.lognormal(0, 1, CHANNELS),
    }
    layer = nn.BatchNorm2d(CHANNELS).eval()
    names = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}
    layer.load_state_dict(
        {names[name]: torch.from_numpy(value) for name, value in values.items()}
        | {"num_batches_tracked": torch.tensor(0)}
    )
    model = make_model([batch_norm_node()], shape=("n", CHANNELS, "h", "w"), initializers=values)
    return layer, save(model, path / "model.onnx")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("strategy", "robust", "calibrated"),
    [
        ("batch", False, False),
        ("batch", True, False),
        ("batch", True, True),
        ("prior(N=6)", False, False),
        ("prior(N=6)", True, True),
        ("auto(calibrated=False)", False, False),
        ("auto(calibrated=False)", True, False),
        ("auto", False, True),
        ("auto", True, True),
    ],
)
@torch.no_grad()
def test_nodes_equal_pytorch_on_random_inputs(strategy, robust, calibrated, seed, tmp_path):
    random = np.random.default_rng(seed)
    layer, path = layer_and_file(random, tmp_path)
    source = [draw(random, 30) for _ in range(2)]
    predbn.onnx.adapt(path, tmp_path / "out.onnx", strategy, robust=robust, loader=source if calibrated else None)
    model = nn.Sequential(layer)
    if calibrated:
        predbn.calibrate(model, source)
    predbn.adapt(model, strategy, robust=robust)
    predict = load(tmp_path / "out.onnx")
    for n in SIZES:
        x = draw(random, n, outliers=n // 8)
        np.testing.assert_allclose(predict(x.numpy()), model(x).numpy(), rtol=2e-4, atol=2e-4)
