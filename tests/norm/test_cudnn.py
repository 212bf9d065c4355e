"""Statistics out of cuDNN's convolutions: their equations, the graphs that use them, and on a GPU the kernels."""

from __future__ import annotations

import copy
from importlib.util import find_spec

import pytest
import torch
from torch._dynamo.utils import counters

import predbn

from .test_fused_network import adapted, distance, images, needs_interpreter, resnet50

needs_cudnn = pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("cudnn") is None, reason="no GPU with cuDNN's Python package here"
)


@pytest.fixture(autouse=True)
def _forget_graphs():
    pytest.importorskip("triton", reason="Triton is not installed")
    torch._dynamo.reset()
    counters.clear()


@needs_interpreter
@pytest.mark.parametrize("channels", [5, 300])
@pytest.mark.parametrize("offset", [0.0, 3.0, 30.0])
def test_moments_from_totals(offset, channels):
    from predbn.norm.gpu.mixed_moments import Mixing, mixed_moments_of_totals

    values = torch.randn(1000, channels, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + offset
    totals = torch.stack([values.sum(0), values.square().sum(0)]).float()
    var, mean = torch.var_mean(values, 0, correction=0)
    found = mixed_moments_of_totals(totals, 1000, 10, Mixing(), 0.0).double()
    torch.testing.assert_close(found[0], mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1], var, rtol=1e-3, atol=0)
    torch.testing.assert_close(found[2:4], found[:2], rtol=0, atol=0)
    scale = (found[1] + 1e-5) ** -0.5
    torch.testing.assert_close(found[4], scale, rtol=1e-5, atol=0)
    torch.testing.assert_close(found[5], -mean * scale, rtol=1e-3, atol=1e-5)


@needs_interpreter
def test_a_variance_that_the_sums_cannot_tell_has_a_lower_bound():
    from predbn.norm.gpu.conv_cudnn import LEAST_VARIANCE
    from predbn.norm.gpu.mixed_moments import Mixing, mixed_moments_of_totals

    totals = torch.tensor([[500.0, float("nan")], [2499.99, float("nan")]])  # Σy²/n is less than mean²
    mean, var, *_ = mixed_moments_of_totals(totals, 100, 10, Mixing(), LEAST_VARIANCE)
    assert float(mean[0]) == 5.0
    assert float(var[0]) == pytest.approx(25 * LEAST_VARIANCE)
    assert var[1].isnan()


@pytest.fixture
def stand_in(monkeypatch):
    """cuDNN's kernels, computed by PyTorch; the shapes that they were asked for."""
    from predbn.norm.gpu import conv_choice, conv_cudnn

    asked = []

    def run(plan, x, weight, geometry):
        asked.append(tuple(weight.shape))
        y = geometry.convolve(x, weight).contiguous(memory_format=torch.channels_last)
        values = y.float().movedim(1, 0).flatten(1)
        return y, torch.stack([values.sum(1), values.square().sum(1)])

    monkeypatch.setattr(conv_cudnn, "can_be_used", lambda x, weight: True)
    monkeypatch.setattr(conv_cudnn, "_plan_of", lambda *_: object())
    monkeypatch.setattr(conv_cudnn, "_run", run)
    monkeypatch.setattr(conv_choice.FORCED, "way", "cudnn")
    return asked


def compiled_and_model(strategy):
    return predbn.compile(adapted(strategy), backend="eager", dynamic=True, fullgraph=True), adapted(strategy)


@needs_interpreter
@pytest.mark.parametrize("strategy", ["batch", "prior(N=4)"])
def test_all_statistics_come_out_of_convolutions(stand_in, strategy):
    fused, model = compiled_and_model(strategy)
    with torch.inference_mode():
        for count in (4, 2):
            x = images(count, seed=count)
            torch.testing.assert_close(fused(x), model(x), rtol=5e-3, atol=5e-3)
    assert counters["stats"]["unique_graphs"] == 1
    assert len(stand_in) == 2 * 4
    assert {shape[2] for shape in stand_in} == {1, 3}
    assert all(layer.fused.startswith("statistics") for layer in predbn.describe(fused))


def assert_right_without_cudnn(strategy, asked):
    fused, model = compiled_and_model(strategy)
    with torch.inference_mode():
        x = images(4)
        torch.testing.assert_close(fused(x), model(x), rtol=5e-3, atol=5e-3)
    assert not asked


@needs_interpreter
def test_sums_of_examples_do_not_come_from_cudnn(stand_in):
    assert_right_without_cudnn("auto(passes=1)", stand_in)


@needs_interpreter
def test_a_shape_without_a_kernel_is_computed_separately(stand_in, monkeypatch):
    from predbn.norm.gpu import conv_cudnn

    monkeypatch.setattr(conv_cudnn, "_plan_of", lambda *_: None)
    assert_right_without_cudnn("batch", stand_in)


@needs_interpreter
def test_values_with_a_mean_that_is_large_compared_to_their_spread_are_computed_separately(stand_in):
    from predbn.norm.gpu.conv_choice import CUDNN, SEPARATE, SITES, new_site
    from predbn.norm.gpu.conv_cudnn import Geometry, with_moments

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 8, 6, 6, generator=generator).half().contiguous(memory_format=torch.channels_last)
    weight = torch.eye(8)[:, :, None, None].half()
    geometry, near, far = Geometry((1, 1), (0, 0), (1, 1)), new_site(), new_site()
    for site, offset, way in ((near, 3.0, CUDNN), (far, 100.0, SEPARATE)):
        values = (x + offset).contiguous(memory_format=torch.channels_last)
        for _ in range(2):
            y, (found_mean, found_var, *_) = with_moments(values, weight, geometry, site=site)
            var, mean = torch.var_mean(y.double(), (0, 2, 3), correction=0)
            torch.testing.assert_close(found_mean.double(), mean, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(found_var.double(), var, rtol=1e-3, atol=0)
        assert SITES[site].way == way
    assert len(stand_in) == 3  # the second one of `far` was not asked for


@needs_interpreter
def test_a_deterministic_model_does_not_use_them(stand_in):
    torch.use_deterministic_algorithms(True)
    try:
        fused, _ = compiled_and_model("batch")
        with torch.inference_mode():
            fused(images(4))
    finally:
        torch.use_deterministic_algorithms(False)
    assert not stand_in


SHAPES = [
    (100, 64, 256, 56, 1, 1),
    (100, 128, 128, 56, 3, 2),
    (3, 256, 64, 14, 1, 2),
    (7, 64, 64, 9, 3, 1),
    (5, 16, 24, 11, 5, 1),
]


@needs_cudnn
@pytest.mark.parametrize(("examples", "depth", "channels", "size", "kernel", "stride"), SHAPES)
def test_cudnn_against_float64(examples, depth, channels, size, kernel, stride):
    from predbn.norm.gpu.conv_cudnn import Geometry, _plan_of, with_moments

    torch.manual_seed(0)
    x = (
        (torch.randn(examples, depth, size, size, device="cuda") + 1)
        .half()
        .contiguous(memory_format=torch.channels_last)
    )
    weight = torch.randn(channels, depth, kernel, kernel, device="cuda") / (depth * kernel**2) ** 0.5
    weight = weight.half().contiguous(memory_format=torch.channels_last)
    geometry = Geometry((stride, stride), (kernel // 2, kernel // 2), (1, 1))
    y, (found_mean, found_var, *_) = with_moments(x, weight, geometry)
    assert _plan_of(x, weight, geometry) is not None
    expected = geometry.convolve(x.double(), weight.double())
    assert y.shape == expected.shape
    assert float((y.double() - expected).norm() / expected.norm()) < 1e-3
    var, mean = torch.var_mean(y.double(), (0, 2, 3), correction=0)
    torch.testing.assert_close(found_mean.double(), mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found_var.double(), var, rtol=1e-3, atol=0)


@needs_cudnn
@pytest.mark.parametrize("strategy", ["batch", "prior(N=16)"])
def test_a_compiled_resnet_with_cudnn_is_as_precise_as_the_model(monkeypatch, strategy):
    from predbn.norm.gpu import conv_choice

    monkeypatch.setattr(conv_choice.FORCED, "way", "cudnn")
    model, x = resnet50(strategy)
    exact, fused = copy.deepcopy(model).double(), predbn.compile(model, dynamic=True, fullgraph=True)
    with torch.inference_mode():
        for count in (16, 11):
            expected = exact(x[:count].double())
            assert distance(fused(x[:count]), expected) < 2 * distance(model(x[:count]), expected) + 2e-3
    described = [layer.fused for layer in predbn.describe(fused)]
    assert sum(text.startswith("statistics") for text in described) == 52  # all but the first one
