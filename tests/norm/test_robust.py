"""`adapt(…, robust=True)`: no single example has much influence on the statistics of its batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import predbn
from predbn.common import AdaptationError
from predbn.data import sample
from predbn.models import load
from predbn.norm import Statistics
from predbn.norm.robust import robust_statistics

from .models import images, net

STRATEGIES = ["batch", "prior", "ema", "frozen", "auto", "auto_stream", "population"]


def adapted(strategy: str, **options: object) -> torch.nn.Module:
    model = predbn.calibrate(net(), list(images(64, seed=3).split(32)))
    loader = list(images(64, seed=4).split(16)) if strategy == "population" else None
    return predbn.adapt(model, strategy, loader=loader, **options)


def slow_statistics(mean, var, clean, eps):
    """The equations, one example and channel at a time."""
    n, c = mean.shape
    distance = []
    for i in range(n):
        terms = []
        for k in range(c):
            z2 = (mean[i, k] - clean.mean[k]) ** 2 / (clean.var[k] + eps)
            r = (var[i, k] + eps) / (clean.var[k] + eps) + z2
            terms.append(z2 + (r - 1) ** 2 / 2)
        distance.append(sum(terms) / c)
    finite = sorted(d for d in distance if torch.isfinite(d))
    median = finite[(len(finite) - 1) // 2]
    weights = [min(1.0, float(3 * median / d)) if torch.isfinite(d) else 0.0 for d in distance]
    rows = [i for i in range(n) if weights[i] > 0]
    total = sum(weights)
    new_mean = sum(weights[i] * mean[i] for i in rows) / total
    new_var = sum(weights[i] * (var[i] + (mean[i] - new_mean) ** 2) for i in rows) / total
    return new_mean, new_var


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 9), c=st.integers(1, 5), outliers=st.integers(0, 2), seed=st.integers(0, 1000), bad=st.booleans()
)
def test_statistics_equal_the_equations(n, c, outliers, seed, bad):
    generator = torch.Generator().manual_seed(seed)
    mean, var = torch.randn(n, c, generator=generator).double(), torch.rand(n, c, generator=generator).double() + 0.5
    mean[:outliers] *= 100
    if bad and n > 2:
        mean[-1, 0], var[-1, -1] = torch.nan, torch.inf
    clean = Statistics(torch.randn(c, generator=generator).double(), torch.rand(c, generator=generator).double() + 0.5)
    statistics, is_finite = robust_statistics(mean, var, clean, 1e-5)
    expected = slow_statistics(mean, var, clean, 1e-5)
    torch.testing.assert_close(tuple(statistics), expected)
    assert is_finite.sum() == n - (bad and n > 2)


@torch.no_grad()
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_examples_that_are_alike_count_alike_however_far_they_are(shift):
    x = images(16, shift=shift)
    layer = predbn.adapt(net().bn1, "batch", robust=True)
    features = torch.cat([x, x, x])[:, :1].repeat(1, 8, 1, 1) + 0.01 * torch.randn(48, 8, 6, 6)
    torch.testing.assert_close(layer(features), predbn.adapt(layer, "batch")(features), atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:.*not finite")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_changes_no_other(strategy, value):
    x = images(9)
    x[4, 0, 2, 2] = value
    others = torch.arange(9) != 4
    model, alone = adapted(strategy, robust=True), adapted(strategy, robust=True)
    torch.testing.assert_close(model(x)[others], alone(x[others]), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model(images(6, seed=8)), alone(images(6, seed=8)), atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("strategy", ["batch", "prior", "auto"])
def test_groups_equal_batches_alone(strategy):
    alone, together = adapted(strategy, robust=True), adapted(strategy, robust=True, group=4)
    x = images(12)
    x[5] *= 100
    torch.testing.assert_close(together(x), torch.cat([alone(part) for part in x.split(4)]), atol=1e-5, rtol=1e-4)


def test_gradients_flow_through_the_weights():
    x = images(6).double().requires_grad_()
    layer = predbn.adapt(net().bn1.double(), "batch", robust=True)
    with torch.no_grad():
        x[0] += 20
    assert torch.autograd.gradcheck(lambda x: layer(x[:, :1].repeat(1, 8, 1, 1)).square(), (x,), fast_mode=True)


def test_processes_are_not_pooled():
    with pytest.raises(AdaptationError, match="drop one"):
        predbn.adapt(net(), "batch", robust=True, sync=True)


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

    assert accuracy() < 0.5
    assert accuracy(robust=True) > 0.8
