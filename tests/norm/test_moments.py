"""Moments and normalisation in PyTorch, against double precision and PyTorch's own kernels."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from predbn.norm import Statistics, StreamSegments
from predbn.norm.moments import example_moments, moments, pooled
from predbn.norm.normalise import normalise
from predbn.norm.segments import Groups

EPS = 1e-5
shapes = st.one_of(
    st.tuples(st.integers(2, 9), st.integers(1, 5)),
    st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(2, 40)),
    st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 9), st.integers(2, 9)),
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(2, 4)),
)


def reference(x):
    var, mean = torch.var_mean(x.double(), [0, *range(2, x.dim())], correction=0)
    return mean, var


def random(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@given(shape=shapes, offset=st.sampled_from([0.0, 3.0, 1e3]), scale=st.sampled_from([1e-3, 1.0, 50.0]))
def test_moments_equal_double_precision(shape, offset, scale):
    x = random(shape) * scale + offset
    mean, var = moments(x, EPS)
    expected_mean, expected_var = reference(x)
    rounding = max(offset, scale) * 2e-6
    torch.testing.assert_close(mean.double(), expected_mean, rtol=0, atol=rounding)
    # The rounding of a mean, 1.2e-7 of it, changes the squared deviation of x from it by twice their product.
    atol = rounding**2 + 4e-7 * scale * max(offset, scale) + 1e-11
    torch.testing.assert_close(var.double(), expected_var, rtol=1e-5, atol=atol)


def layouts(x):
    """The same values in every layout that a layer may be given."""
    padded = torch.empty(*x.shape[:-1], x.shape[-1] + 1, dtype=x.dtype)
    padded[..., :-1] = x
    yield "contiguous", x
    yield "channels_last", x.movedim(1, -1).contiguous().movedim(-1, 1)
    yield "channels_first", x.transpose(0, 1).contiguous().transpose(0, 1)
    yield "transposed", x.transpose(0, -1).contiguous().transpose(0, -1)
    yield "sliced", padded[..., :-1]


def assert_precise_in_every_layout(x):
    """The mean to 2e-6 of the largest value, the variance to 2e-6 of itself."""
    expected_mean, expected_var = reference(x)
    for layout, same in layouts(x):
        for t in (same, same.detach().requires_grad_()):
            mean, var = moments(t, EPS)
            error = ((mean.double() - expected_mean).abs() / x.double().abs().max()).max()
            assert error < 2e-6, f"mean, {layout}, {x.dtype}"
            assert ((var.double() - expected_var).abs() / expected_var).max() < 2e-6, f"variance, {layout}, {x.dtype}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(1, 3, 500, 500), (4, 2, 1, 70001), (200000, 3), (70001, 3, 2), (2, 3, 40, 50, 20)])
def test_long_sums_are_precise_in_every_layout_and_dtype(size, dtype):
    offset = torch.tensor([0.0, 3.0, 100.0])[: size[1]].view(-1, *[1] * (len(size) - 2))
    assert_precise_in_every_layout((random(size) + offset).to(dtype))


@given(
    n=st.integers(1, 3000),
    c=st.integers(1, 4),
    positions=st.lists(st.integers(1, 40), max_size=3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
def test_moments_of_any_size_layout_and_dtype(n, c, positions, dtype):
    size = (n // math.prod(positions) + 2, c, *positions)
    assert_precise_in_every_layout((random(size) + 1).to(dtype))


@pytest.mark.parametrize("size", [(1, 3, 400, 400), (100003, 3), (2, 3, 131, 137)])
def test_sums_of_equal_values_do_not_drift(size):
    """Each addition of the same value is rounded the same way."""
    x = torch.full(size, 0.1)
    for _, same in layouts(x):
        mean, var = moments(same, EPS)
        torch.testing.assert_close(mean, x.flatten()[:1].expand(3), rtol=2e-6, atol=0)
        torch.testing.assert_close(var, torch.zeros(3), rtol=0, atol=1e-12)


def test_a_channel_far_from_zero_is_computed_again():
    x = torch.randn(4, 3, 32, 32)
    x[:, 1] = x[:, 1] * 1e-2 + 1e3
    mean, var = moments(x, EPS)
    expected_mean, expected_var = reference(x)
    torch.testing.assert_close(var.double(), expected_var, rtol=1e-4, atol=0)
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=1e-6)


@given(
    shape=shapes,
    offset=st.sampled_from([0.0, 3.0, 1e3]),
    channels_last=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_moments_of_examples(shape, offset, channels_last, dtype):
    x = (random(shape) + offset).to(dtype)
    if channels_last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    mean, var = example_moments(x, EPS)
    wide = x.double().reshape(*shape[:2], -1)
    torch.testing.assert_close(mean.double(), wide.mean(2), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(var.double(), wide.var(2, correction=0), rtol=1e-4, atol=1e-7 * (1 + offset))


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 1, 1), (0, 3, 4, 4), (5, 3, 1, 1)])
def test_moments_of_each_of_no_examples_and_of_single_values(shape):
    mean, var = example_moments(torch.randn(shape))
    assert mean.shape == var.shape == shape[:2]
    assert torch.equal(var, torch.zeros(shape[:2]))


@given(shape=shapes, offset=st.sampled_from([0.0, 3.0, 1e3]), data=st.data())
def test_moments_of_segments_equal_double_precision(shape, offset, data):
    x, count = random(shape) + offset, data.draw(st.integers(1, min(4, shape[0])))
    others = st.lists(st.integers(0, count - 1), min_size=shape[0] - count, max_size=shape[0] - count)
    positions = data.draw(st.permutations([*range(count), *data.draw(others)]))
    segments = StreamSegments(positions, count)
    mean, var = pooled(*example_moments(x, EPS), segments, segments.size_tensor(x))
    assert mean.shape == var.shape == (count, shape[1])
    for segment in range(count):
        expected_mean, expected_var = reference(x[torch.tensor(positions) == segment])
        # The means of examples are rounded, by 6e-8 of the offset, before they are compared with each other.
        torch.testing.assert_close(mean[segment].double(), expected_mean, rtol=0, atol=max(offset, 1.0) * 2e-6)
        torch.testing.assert_close(var[segment].double(), expected_var, rtol=1e-5, atol=1.2e-7 * offset + 1e-11)


def test_examples_that_are_not_finite_do_not_count():
    x, segments = torch.randn(6, 3, 4), StreamSegments([0, 1, 0, 1, 1, 0], 2)
    x[3, 1, 2] = torch.nan
    sizes = torch.tensor([[3], [2]])
    mean, var = pooled(*example_moments(x, EPS), segments, sizes, torch.arange(6) != 3)
    for segment, rows in enumerate(([0, 2, 5], [1, 4])):
        expected_mean, expected_var = reference(x[rows])
        torch.testing.assert_close(mean[segment].double(), expected_mean)
        torch.testing.assert_close(var[segment].double(), expected_var)


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3, 5), (6, 5, 4, 4), (6, 5, 17), (6, 5, 2, 3, 4)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "segments", [StreamSegments([1, 0, 2, 1, 1, 0], 3), StreamSegments([0, 1, 2], 3), Groups(6, 2)]
)
def test_normalising_with_statistics_of_segments(shape, layout, segments):
    """Also with two rows per example."""
    x, (mean, var) = torch.randn(shape), torch.rand(2, 3, 5) + 0.1
    x = x.contiguous(memory_format=layout) if x.dim() == 4 else x
    weight, bias = torch.rand(2, 5)
    y = normalise(x, Statistics(mean, var), weight, bias, EPS, segments)
    rows = torch.arange(segments.examples).repeat_interleave(6 // segments.examples)
    segment = segments.index(x)[rows]
    view = [6, 5, *[1] * (len(shape) - 2)]
    scale = weight / (var[segment] + EPS).sqrt()
    expected = (x - mean[segment].view(view)) * scale.view(view) + bias.view(view[1:])
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


class LargeResults(TorchDispatchMode):
    """Counts results as large as the activation."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.numel, self.count, self.counted = x.numel(), 0, {x.data_ptr()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple | list) else (out,):
            if isinstance(t, torch.Tensor) and t.numel() >= self.numel and t.data_ptr() not in self.counted:
                self.counted.add(t.data_ptr())
                self.count += 1
        return out


@pytest.mark.parametrize("shape", [(16, 8, 12, 12), (64, 8, 4, 4)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_nothing_as_large_as_the_activation_but_the_result(shape, layout):
    x = torch.randn(shape).contiguous(memory_format=layout)
    with torch.no_grad(), LargeResults(x) as mode:
        normalise(x, Statistics(*moments(x, EPS)), torch.ones(8), torch.zeros(8), EPS)
    assert mode.count == 1


def test_gradients_flow_through_the_statistics():
    x = torch.randn(6, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    weight, bias = torch.rand(3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)

    def mixed(t):
        mean, var = moments(t, 1e-3)
        return normalise(t, Statistics(0.5 * mean, 0.5 * var + 0.5), weight, bias, 1e-3)

    assert torch.autograd.gradcheck(mixed, x)
