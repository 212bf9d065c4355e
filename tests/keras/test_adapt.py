"""Keras models, with torch behind them: the numbers of the PyTorch path, and an exact undo."""

import copy
import os

import numpy as np
import pytest
import torch
from torch import nn

import predbn
import predbn.keras

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="keras is not installed")


def torch_model():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, eps=1e-3), nn.ReLU(),
        nn.Conv2d(8, 12, 3, padding=1), nn.BatchNorm2d(12, eps=1e-3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5, affine=False, eps=1e-3),
    )  # fmt: skip
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1, 0.3)
            nn.init.normal_(layer.bias, 0, 0.3)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(16, 3, 8, 8))
    return model.eval()


def converted(source):
    """The same model in Keras, layer by layer; the first block is a model inside the model."""
    layers, arrays = keras.layers, lambda module, *names: [getattr(module, name).detach().numpy() for name in names]
    block = keras.Sequential([layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(name="first")])
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)), block, layers.ReLU(),
            layers.Conv2D(12, 3, padding="same"), layers.BatchNormalization(name="second"), layers.ReLU(),
            layers.GlobalAveragePooling2D(), layers.Dense(5),
            layers.BatchNormalization(center=False, scale=False, name="third"),
        ]
    )  # fmt: skip
    statistics = "weight", "bias", "running_mean", "running_var"
    for target, module in ((block.layers[0], source[0]), (model.layers[2], source[3])):
        kernel, bias = arrays(module, "weight", "bias")
        target.set_weights([kernel.transpose(2, 3, 1, 0), bias])
    block.layers[1].set_weights(arrays(source[1], *statistics))
    model.layers[3].set_weights(arrays(source[4], *statistics))
    kernel, bias = arrays(source[8], "weight", "bias")
    model.layers[6].set_weights([kernel.T, bias])
    model.layers[7].set_weights(arrays(source[9], "running_mean", "running_var"))
    return model


def batch(n=12):
    x = 2 * np.random.default_rng(0).standard_normal((n, 8, 8, 3)) + 1
    return x.astype(np.float32)


def as_array(y):
    return keras.ops.convert_to_numpy(y)


def weights(model):
    return [as_array(weight) for weight in model.weights]


@pytest.fixture(scope="module")
def trained():
    return torch_model()


@pytest.fixture
def pair(trained):
    """Converting is quick, training is not."""
    source = copy.deepcopy(trained)
    return source, converted(source)


@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)", "prior(N=0)", "prior(N=1e999)"])
@torch.no_grad()
def test_the_numbers_are_those_of_pytorch(pair, strategy):
    source, model = pair
    x = batch()
    y = source(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(as_array(model(x)), y, rtol=1e-4, atol=1e-5)
    predbn.adapt(source, strategy)
    predbn.keras.adapt(model, strategy)
    y = source(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(as_array(model(x)), y, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.predict(x, batch_size=len(x), verbose=0), y, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_restore_undoes_it_bit_for_bit(pair):
    _, model = pair
    x, before = batch(), weights(model)
    plain, predicted = as_array(model(x)), model.predict(x, verbose=0)
    classes = [type(layer) for layer in model._flatten_layers()]
    predbn.keras.adapt(model)
    predbn.keras.adapt(model, "prior", N=3)
    assert not np.allclose(as_array(model(x)), plain, atol=0.1)
    assert not np.allclose(model.predict(x, verbose=0), plain, atol=0.1)
    assert all(np.array_equal(a, b) for a, b in zip(weights(model), before, strict=True))
    predbn.keras.restore(model)
    assert np.array_equal(as_array(model(x)), plain)
    assert np.array_equal(model.predict(x, verbose=0), predicted)
    assert [type(layer) for layer in model._flatten_layers()] == classes


def test_training_is_as_before(pair):
    source, model = pair
    other = converted(source)
    predbn.keras.adapt(model)
    np.testing.assert_array_equal(as_array(model(batch(), training=True)), as_array(other(batch(), training=True)))
    assert all(np.array_equal(a, b) for a, b in zip(weights(model), weights(other), strict=True))


@torch.no_grad()
def test_only_some_layers(pair):
    source, model = pair
    predbn.keras.adapt(model, layers=["second", "third"])
    predbn.adapt(source, layers=["4", "9"])
    x = batch()
    y = source(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(as_array(model(x)), y, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_values_that_a_mask_leaves_out():
    layer = keras.layers.BatchNormalization()
    x = batch().reshape(12, -1, 3)
    mask = np.random.default_rng(1).random(x.shape[:2]) < 0.7
    layer(x)
    predbn.keras.adapt(layer)
    selected = x[mask].astype(np.float64)
    expected = (x - selected.mean(0)) / np.sqrt(selected.var(0) + layer.epsilon)
    np.testing.assert_allclose(as_array(layer(x, mask=mask)), expected, rtol=1e-4, atol=1e-5)


def test_a_saved_model_is_the_original(pair, tmp_path):
    _, model = pair
    x, plain = batch(), as_array(pair[1](batch()))
    predbn.keras.adapt(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(as_array(loaded(x)), plain)


class Custom(keras.layers.BatchNormalization):
    def call(self, inputs, training=None, mask=None):
        return inputs


@pytest.mark.parametrize(
    ("model", "strategy", "match"),
    [
        (lambda: keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), "batch", "no BatchNormalization layers"),
        (lambda: nn.Linear(2, 2), "batch", "expected a Keras model, got Linear"),
        (lambda: keras.Sequential([keras.layers.BatchNormalization()]), "batch", "is not built"),
        (lambda: keras.Sequential([keras.Input((3,)), Custom()]), "batch", "Custom, which overrides call"),
        (
            lambda: keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()]),
            "ema",
            "'ema' is not available for Keras",
        ),
    ],
)
def test_what_cannot_be_adapted(model, strategy, match):
    with pytest.raises(predbn.AdaptationError, match=match):
        predbn.keras.adapt(model(), strategy)
