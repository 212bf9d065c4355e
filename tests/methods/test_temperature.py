"""The fitted temperature against scipy's bounded search."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar

import predbn
from predbn.methods import MethodError, Temperature, fit_temperature

from .models import STRATEGIES, labelled, models, snapshot


def drawn(n=400, classes=10, seed=0, temperature=1.0):
    """Logits, and labels drawn from their softmax at a temperature."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, (logits / temperature).softmax(1).multinomial(1, generator=generator)[:, 0]


@pytest.mark.parametrize(("classes", "scale"), [(2, 1e-3), (2, 1e4), (10, 1.0), (10, 5.0), (100, 0.3)])
def test_scipy_finds_the_same(scale, classes):
    logits, labels = drawn(classes=classes, seed=classes)
    logits *= scale
    minimum = minimize_scalar(
        lambda log_t: F.cross_entropy(logits / math.exp(log_t), labels).item(),
        bounds=(math.log(scale) - 3, math.log(scale) + 3),
        method="bounded",
        options={"xatol": 1e-7},
    )
    assert Temperature.fit(logits, labels).value == pytest.approx(math.exp(minimum.x), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_logits_of_any_dtype_and_any_offset(dtype):
    logits, labels = drawn()
    wanted = Temperature.fit(logits.to(dtype).double(), labels).value
    assert Temperature.fit(logits.to(dtype), labels).value == pytest.approx(wanted, rel=1e-9)
    for without_gradients in (torch.no_grad, torch.inference_mode):
        with without_gradients():
            shifted = Temperature.fit(logits.to(dtype).double() + 1000, labels)
        assert shifted.value == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_is_fitted_under_the_strategy_and_the_model_is_left_alone(strategy):
    model = models(1)[0]
    batches = labelled(model)
    model.drop.train()
    before = snapshot(model)
    fitted = fit_temperature(model, batches, strategy=strategy)
    assert snapshot(model) == before
    twin = models(1)[0]
    predbn.adapt(twin, strategy, **({"loader": batches} if strategy == "population" else {}))
    with torch.no_grad():
        logits = torch.cat([twin(images) for images, _, _ in batches])
    wanted = Temperature.fit(logits, torch.cat([labels for _, labels, _ in batches]))
    assert fitted.value == pytest.approx(wanted.value, rel=1e-6)


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], [0, 1], "every validation example is predicted correctly"),
        ([[1.0, 0.0], [0.0, 1.0]], [1, 0], "no higher than the others"),
        ([[0.0, 0.0]], [0], "every validation example is predicted correctly"),
        ([[1.0, math.nan]], [0], "NaN or infinity"),
        ([[1.0, -math.inf]], [1], "NaN or infinity"),
        ([[1.0, 0.0]], [2], "labels between 0 and 1, but got 2 to 2"),
        ([[1.0, 0.0]], [0, 1], "one label for each of the 1 rows"),
    ],
)
def test_an_error_says_why_there_is_no_best_temperature(logits, labels, message):
    with pytest.raises(MethodError, match=message):
        Temperature.fit(torch.tensor(logits), torch.tensor(labels))


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "1"])
def test_a_wrong_temperature_is_an_error(value):
    with pytest.raises(MethodError, match="finite and greater than 0"):
        Temperature(value)


def test_a_population_needs_batches_that_can_be_iterated_over_again():
    model = models(1)[0]
    with pytest.raises(MethodError, match="but got an iterator"):
        fit_temperature(model, iter(labelled(model)), strategy="population")
    assert fit_temperature(model, iter(labelled(model))).value > 0
    for batches, message in (([], "at least one batch"), ([torch.zeros(2, 3)], "tuples that start with images")):
        with pytest.raises(MethodError, match=message):
            fit_temperature(model, batches)
