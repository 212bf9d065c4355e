"""Moments and normalisation against double precision and PyTorch's own kernels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from predbn.norm import kernels

shapes = st.one_of(
    st.tuples(st.integers(2, 9), st.integers(1, 5)),
    st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(2, 40)),
    st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 9), st.integers(2, 9)),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(2, 4)),
)


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    var, mean = torch.var_mean(x.double(), kernels.dims_without_channels(x), correction=0)
    return mean, var


@given(shape=shapes, offset=st.sampled_from([0.0, 3.0, 1e3]), scale=st.sampled_from([1e-3, 1.0, 50.0]))
def test_moments_equal_double_precision(shape, offset, scale):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * scale + offset
    mean, var = kernels.moments(x, eps=1e-5)
    expected_mean, expected_var = reference(x)
    ulp = max(offset, scale) * 2e-6
    torch.testing.assert_close(mean.double(), expected_mean, rtol=0, atol=ulp)
    torch.testing.assert_close(var.double(), expected_var, rtol=1e-5, atol=ulp**2 + 1e-11)


@pytest.mark.parametrize("size", [(2, 3, 300, 301), (1, 3, 224, 224), (3, 2, 17, 1), (2, 3, 16000)])
def test_large_maps_lose_no_precision(size):
    x = torch.randn(size) + 2
    mean, var = kernels.moments(x, eps=1e-5)
    expected_mean, expected_var = reference(x)
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(var.double(), expected_var, rtol=5e-6, atol=0)


def test_a_channel_far_from_zero_is_computed_again():
    x = torch.randn(4, 3, 32, 32)
    x[:, 1] = x[:, 1] * 1e-2 + 1e3
    mean, var = kernels.moments(x, eps=1e-5)
    expected_mean, expected_var = reference(x)
    torch.testing.assert_close(var.double(), expected_var, rtol=1e-4, atol=0)
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=1e-6)


@given(
    shape=shapes,
    channels_last=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_moments_of_examples(shape, channels_last, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    if channels_last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    mean, square = kernels.example_moments(x)
    wide = x.double().reshape(*shape[:2], -1)
    tolerance = 1e-5
    torch.testing.assert_close(mean.double(), wide.mean(2), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(square.double(), (wide**2).mean(2), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
def test_low_precision_keeps_single_precision_statistics(dtype, affine):
    x = (torch.randn(16, 4, 8, 8) * 3 + 1).to(dtype)
    weight, bias = (torch.rand(4).to(dtype), torch.rand(4).to(dtype)) if affine else (None, None)
    wide = [None if t is None else t.float() for t in (weight, bias)]
    y, own = kernels.batch_norm(x, *wide, 1e-5)
    assert own.mean.dtype == torch.float32
    mean, var = reference(x)
    torch.testing.assert_close(own.statistics.mean.double(), mean, rtol=1e-5, atol=1e-6)
    wide = [None if t is None else t.double() for t in (weight, bias)]
    expected = F.batch_norm(x.double(), mean, var, *wide, False, 0.0, 1e-5)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), expected, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_statistics_of_each_example():
    x = torch.randn(5, 3, 4, 4)
    mean, square = kernels.example_moments(x)
    y = kernels.normalise(x, mean, square - mean**2, torch.tensor([1.0, 2.0, 3.0]), torch.ones(3), 1e-5)
    expected = F.instance_norm(x, weight=torch.tensor([1.0, 2.0, 3.0]), bias=torch.ones(3), eps=1e-5)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


class LargeResults(TorchDispatchMode):
    """Counts results as large as the activation."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.numel, self.count, self.counted = numel, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple | list) else (out,):
            fresh = isinstance(t, torch.Tensor) and t.numel() >= self.numel and t.data_ptr() not in self.counted
            if fresh:
                self.counted.add(t.data_ptr())
                self.count += 1
        return out


@pytest.mark.parametrize("shape", [(16, 8, 12, 12), (64, 8, 4, 4)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_nothing_as_large_as_the_activation_but_the_result(shape, layout):
    x = torch.randn(shape).contiguous(memory_format=layout)
    mode = LargeResults(x.numel())
    mode.counted.add(x.data_ptr())
    with torch.no_grad(), mode:
        kernels.batch_norm(x, torch.ones(8), torch.zeros(8), 1e-5)
    assert mode.count == 1


def test_gradients_flow_through_the_statistics():
    x = torch.randn(6, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.rand(3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda t: kernels.batch_norm(t, weight, bias, 1e-3)[0], x)

    def mixed(t):
        mean, var = kernels.moments(t, 1e-3)
        return kernels.normalise(t, 0.5 * mean, 0.5 * var + 0.5, weight, bias, 1e-3)

    assert torch.autograd.gradcheck(mixed, x)


def test_under_vmap_and_as_a_subclass():
    x = torch.randn(2, 6, 3, 4, 4)
    y = torch.vmap(lambda t: kernels.batch_norm(t, torch.ones(3), torch.zeros(3), 1e-5)[0])(x)
    expected = torch.stack([F.batch_norm(t, None, None, training=True) for t in x])
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


@given(shape=shapes, offset=st.sampled_from([0.0, 3.0, 1e3]), streams=st.integers(1, 4), data=st.data())
def test_moments_of_streams_equal_double_precision(shape, offset, streams, data):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + offset
    index = torch.tensor(data.draw(st.lists(st.integers(0, streams - 1), min_size=shape[0], max_size=shape[0])))
    sizes = torch.bincount(index, minlength=streams)[:, None]
    mean, var = kernels.stream_moments(x, index, sizes, eps=1e-5)
    assert mean.shape == var.shape == (streams, shape[1])
    for stream in range(streams):
        if sizes[stream] == 0:
            assert mean[stream].isnan().all(), "a stream without rows has no mean"
            continue
        expected_mean, expected_var = reference(x[index == stream])
        # The means of rows are rounded, by 6e-8 of the offset, before they are compared with each other.
        torch.testing.assert_close(mean[stream].double(), expected_mean, rtol=0, atol=max(offset, 1.0) * 2e-6)
        torch.testing.assert_close(var[stream].double(), expected_var, rtol=1e-5, atol=1.2e-7 * offset + 1e-11)


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 1, 1), (0, 3, 4, 4), (5, 3, 1, 1)])
def test_moments_of_each_of_no_examples(shape):
    mean, var = kernels.example_means_and_variances(torch.randn(shape))
    assert mean.shape == var.shape == shape[:2]
    assert torch.equal(var, torch.zeros(shape[:2]))


@pytest.mark.parametrize("shape", [(6, 5, 3, 5), (6, 5, 4, 4), (6, 5, 17), (6, 5, 2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normalising_maps_by_rows(shape, dtype):
    """Maps of 16 values and more are left to PyTorch's kernel, with the same result."""
    x, (mean, var) = torch.randn(shape, dtype=dtype), torch.rand(2, 6, 5, dtype=dtype) + 0.1
    weight, bias = torch.rand(2, 5, dtype=dtype)
    scale = weight / (var + 1e-5).sqrt()
    view = [6, 5, *[1] * (len(shape) - 2)]
    wanted = (x - mean.view(view)) * scale.view(view) + bias.view(view[1:])
    torch.testing.assert_close(kernels.normalise(x, mean, var, weight, bias, 1e-5), wanted, rtol=1e-4, atol=1e-5)
