"""`adapt(…, robust=True)`: no single example has much influence on the statistics of its batch."""

import math
from statistics import pvariance

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import predbn
from predbn.data import sample
from predbn.models import load
from predbn.norm.robust import is_finite_example, robust_moments

from .models import images, net


def adapted(strategy: str, **options: object) -> torch.nn.Module:
    model = predbn.calibrate(net(), list(images(64, seed=3).split(32)))
    loader = list(images(64, seed=4).split(16)) if strategy == "population" else None
    return predbn.adapt(model, strategy, loader=loader, **options)


def quantile(values: list[float], share: float) -> float:
    """Linear between the sorted values, as numpy does it."""
    position = share * (len(values) - 1)
    below = sorted(values)[math.floor(position)]
    above = sorted(values)[math.ceil(position)]
    return below + (position - math.floor(position)) * (above - below)


def clip(values: list[float], least_spread: float) -> list[float]:
    """What is too far from the median, compared with the spread of the values in the middle, is moved towards it."""
    low, median, high = (quantile(values, share) for share in (0.35, 0.5, 0.65))
    limit = 0.5 * (1 + 20 / len(values)) * max((high - low) / 0.7706, least_spread)
    return [min(max(value, median - limit), median + limit) for value in values]


def clip_ratios(values: list[float], least_spread: float) -> list[float]:
    """The same for positive values, whose ratio to the median counts."""
    low, median, high = (quantile(values, share) for share in (0.35, 0.5, 0.65))
    limit = math.exp(0.5 * (1 + 20 / len(values)) * max(math.log(high / low) / 0.7706, least_spread))
    return [min(max(value, median / limit), median * limit) for value in values]


def slow_moments(mean, var, eps, clean_var, scatter):
    """The equations, one channel at a time."""
    rows = [i for i in range(len(mean)) if mean[i].isfinite().all() and var[i].isfinite().all()]
    result = []
    for k in range(mean.shape[1]):
        means = clip(mean[rows, k].tolist(), math.sqrt(scatter[k] * (clean_var[k] + eps)))
        variances = clip_ratios((var[rows, k] + eps).tolist(), math.sqrt(2 * scatter[k]))
        result.append((sum(means) / len(rows), sum(variances) / len(rows) - eps + pvariance(means), pvariance(means)))
    return tuple(torch.tensor(column, dtype=torch.float64) for column in zip(*result, strict=True))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 12), c=st.integers(1, 5), outliers=st.integers(0, 2), seed=st.integers(0, 1000), bad=st.booleans()
)
def test_moments_equal_the_equations(n, c, outliers, seed, bad):
    generator = torch.Generator().manual_seed(seed)
    mean, var = torch.randn(n, c, generator=generator).double(), torch.rand(n, c, generator=generator).double() + 0.5
    mean[:outliers] *= 100
    var[-1] *= 50
    if bad and n > 2:
        mean[-1, 0], var[-1, -1] = torch.nan, torch.inf
    clean_var, scatter = torch.rand(2, c, generator=generator).double() + 0.1
    found = robust_moments(mean, var, is_finite_example(mean, var), 1e-5, clean_var, scatter)
    torch.testing.assert_close(tuple(found[:3]), slow_moments(mean, var, 1e-5, clean_var, scatter))


@torch.no_grad()
@pytest.mark.parametrize("size", [2, 20, 200])
def test_what_clipping_does_to_clean_data_is_corrected(size):
    """Skewed channels, one of them zero in most examples: on average, clean batches have the calibrated statistics."""
    generator = torch.Generator().manual_seed(0)
    examples = torch.randn(4000, 6, 1, 1, generator=generator).exp() + torch.randn(4000, 6, 4, 4, generator=generator)
    examples[:, 5] *= (torch.rand(4000, 1, 1, generator=generator) < 0.2).float()
    layer = predbn.calibrate(nn.BatchNorm2d(6).eval(), examples[:2000].split(250))
    predbn.adapt(layer, "batch", robust=True)
    batches = []
    for batch in examples[2000:].split(size):
        layer(batch)
        batches.append(layer._predbn.seen)
    clean = layer._predbn.calibration
    assert (clean.clipping[0] > 0.2).any(), "clipping alone moves the mean"
    mean = torch.stack([statistics.mean for statistics in batches]).mean(0)
    assert ((mean - clean.mean).abs() < 0.12 * clean.var.sqrt()).all()


@pytest.mark.parametrize("value", [-1e6, -3.0, 0.9, 3.0, 1e6])
def test_a_fifth_of_the_examples_cannot_move_a_channel_far(value):
    """Whatever they are: a Gaussian's median moves by 0.32 standard deviations if a fifth lies on one side."""
    generator = torch.Generator().manual_seed(0)
    mean, var = torch.randn(200, 7, generator=generator), torch.rand(200, 7, generator=generator) + 0.5
    before = robust_moments(mean, var, is_finite_example(mean, var), 1e-5, torch.full((7,), 10.0), 0.001)
    mean[:40], var[:40] = value, abs(value)
    after = robust_moments(mean, var, is_finite_example(mean, var), 1e-5, torch.full((7,), 10.0), 0.001)
    assert ((after.mean - before.mean).abs() < 0.6).all()
    assert ((after.var / before.var).log().abs() < 0.6).all()


@torch.no_grad()
@pytest.mark.parametrize("strategy", ["auto", "auto_stream", "batch", "prior"])
def test_auto_is_robust_unless_told_otherwise(strategy):
    x = images(12)
    x[3] *= 50
    by_default, robust, plain = (
        adapted(strategy, **options)(x) for options in ({}, {"robust": True}, {"robust": False})
    )
    assert not torch.allclose(robust, plain, atol=1e-2)
    assert torch.equal(by_default, robust if strategy.startswith("auto") else plain)


@torch.no_grad()
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_examples_that_are_alike_count_alike_however_far_they_are(shift):
    x = images(16, shift=shift)
    layer = predbn.adapt(net().bn1, "batch", robust=True)
    features = torch.cat([x, x, x])[:, :1].repeat(1, 8, 1, 1) + 0.01 * torch.randn(48, 8, 6, 6)
    torch.testing.assert_close(layer(features), predbn.adapt(layer, "batch")(features), atol=1e-5, rtol=1e-4)


def test_gradients_flow_through_the_weights():
    x = images(6).double().requires_grad_()
    layer = predbn.adapt(net().bn1.double(), "batch", robust=True)
    with torch.no_grad():
        x[0] += 20
    assert torch.autograd.gradcheck(lambda x: layer(x[:, :1].repeat(1, 8, 1, 1)).square(), (x,), fast_mode=True)


@torch.no_grad()
def test_outliers_do_not_cost_the_others_their_accuracy():
    """Clean images: one of 50 scaled by 100, of constant colour, or saturated noise."""
    test = sample("test")
    x, y = test.images[:200], test.labels[:200]
    model = load("zoo:resnet20-cifar10/batch/0").eval()
    predbn.calibrate(model, list(sample("validation").images[:400].split(200)))
    network = model.network
    clean_input = (x.float() / 255).flatten(2)
    mean, std = clean_input.mean((0, 2))[:, None, None], clean_input.std((0, 2))[:, None, None]
    inputs = (x.float() / 255 - mean) / std
    inputs[::50] *= 100
    is_good = torch.arange(200) % 50 != 0

    def accuracy(**options: object) -> float:
        predbn.adapt(network, "batch", **options)
        output = torch.cat([network(part) for part in inputs.split(50)])
        return float((output.argmax(1) == y)[is_good].float().mean())

    bounded = accuracy(robust=True)
    assert bounded > 0.8
    assert accuracy() < bounded - 0.2
