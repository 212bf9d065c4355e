"""The kernels as they are shipped, against the equations in PyTorch in double precision."""

from __future__ import annotations

import pytest
import torch

from predbn.gpu.backend import TritonBackend
from predbn.norm import Bounds, Statistics, StreamSegments, robust
from predbn.norm.moments import example_moments, moments, pooled
from predbn.norm.normalise import normalise
from predbn.norm.segments import Groups

BACKEND = TritonBackend()
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
LAYOUTS = [torch.channels_last, torch.contiguous_format]
POSITIONS = [0, 3, 1, 3, 0, 3, 2, 1, 3, 0, 1, 3]
"""Streams of 3, 3, 1 and 5 examples, in a mixed order."""
SHAPES = [
    (9, 5),
    (4, 6, 7),
    (2, 3, 2, 3, 2),
    (6, 16, 8, 8),
    (3, 130, 5, 5),
    (6, 64, 1, 1),
]
EPS = 1e-3


def values(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3 + 5


def batch(device, shape, dtype=torch.float32, layout=torch.contiguous_format, seed=0):
    x = values(*shape, seed=seed).to(device, dtype)
    return x.contiguous(memory_format=layout) if x.dim() == 4 else x


def wide(*tensors):
    return tuple(None if t is None else t.double().cpu() for t in tensors)


def assert_close(ours, expected, rtol=1e-4, atol=1e-4):
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a.double().cpu(), b, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [(shape, layout) for shape in SHAPES for layout in LAYOUTS if len(shape) == 4 or layout is LAYOUTS[1]],
)
def test_moments_of_a_batch(device, shape, layout):
    dtype = DTYPES[len(shape) % 3]
    x = batch(device, shape, dtype, layout)
    result = BACKEND.moments(x, EPS, None, None)
    assert result.mean.dtype == result.var.dtype == torch.float32
    assert_close(result.statistics, moments(*wide(x), EPS))
    assert (result.size, result.values) == (shape[0], x.numel() // shape[1])
    assert result.between is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_moments_of_a_tensor_that_is_not_aligned(device, dtype):
    x = values(1 + 6 * 40 * 20).to(device, dtype)[1:].view(6, 40, 5, 4)
    assert x.data_ptr() % 16
    assert_close(BACKEND.moments(x, EPS, None, None).statistics, moments(*wide(x), EPS))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "ratio"), [((4, 30, 16, 15), 2000.0), ((1, 3, 3, 5), 100.0)])
def test_a_mean_that_is_large_compared_to_the_spread(device, shape, ratio, layout):
    # Half precision: values around 1,000 are rounded to halves, so that the spread is many of these steps.
    x = ((values(*shape) - 5) / 3 * 16 + 16 * ratio).to(device, torch.float16).contiguous(memory_format=layout)
    mean, var = BACKEND.moments(x, EPS, None, None).statistics
    expected_mean, expected_var = moments(*wide(x), EPS)
    torch.testing.assert_close(var.double().cpu(), expected_var, rtol=1e-3, atol=0)
    torch.testing.assert_close(mean.double().cpu(), expected_mean, rtol=1e-6, atol=1e-3)


def segments_of(kind, examples):
    return Groups(examples, 4) if kind == "groups" else StreamSegments(POSITIONS[:examples], 4)


@pytest.mark.parametrize(
    ("kind", "shape"), [("groups", (12, 5)), ("groups", (12, 3, 5, 3)), ("streams", (12, 4, 8, 8))]
)
def test_moments_of_segments_without_examples_that_are_not_finite(device, kind, shape):
    x = batch(device, shape, DTYPES[shape[1] % 3], LAYOUTS[shape[1] % 2])
    x[5, 2] = torch.nan
    x[8, 1] = torch.inf
    segments = segments_of(kind, 12)
    result = BACKEND.moments(x, EPS, segments, None)
    is_finite = torch.tensor([row not in (5, 8) for row in range(12)])
    sizes = segments.sum(is_finite[:, None].double())
    assert torch.equal(result.size.double().cpu(), sizes)
    assert torch.equal(result.values.double().cpu(), sizes * x[0, 0].numel())
    assert_close(result.statistics, pooled(*example_moments(*wide(x), EPS), segments, sizes, is_finite))


@pytest.mark.parametrize(
    ("kind", "is_corrected", "shape", "dtype"),
    [
        ("batch", False, (12, 3), torch.float32),
        ("batch", True, (12, 4, 5, 3), torch.float16),
        ("batch", True, (12, 3), torch.bfloat16),
        ("groups", True, (12, 4, 5, 3), torch.float32),
        ("streams", False, (12, 4, 5, 3), torch.float16),
        ("streams", True, (12, 3), torch.float32),
    ],
)
def test_moments_with_bounded_influence(device, shape, dtype, kind, is_corrected):
    x = batch(device, shape, dtype, torch.channels_last)
    x[1] *= 30  # an outlier
    x[5, 2] = torch.nan
    segments = None if kind == "batch" else segments_of(kind, 12)
    generator = torch.Generator().manual_seed(1)
    clean_var, scatter, *clipping = torch.rand(5, shape[1], generator=generator) + 0.1
    tensors = (clean_var, scatter / 10, torch.stack(clipping)) if is_corrected else (clean_var, 0.01, None)
    result = BACKEND.moments(
        x, EPS, segments, Bounds(0.5, *(t.to(device) if isinstance(t, torch.Tensor) else t for t in tensors))
    )
    is_finite = torch.arange(12) != 5
    sizes = is_finite.double()[:, None].sum(0) if segments is None else segments.sum(is_finite.double()[:, None])
    bounds = Bounds(0.5, *(t.double() if isinstance(t, torch.Tensor) else t for t in tensors))
    statistics, between = robust.bounded_moments(
        *example_moments(*wide(x), EPS), is_finite, EPS, bounds, sizes, segments
    )
    assert torch.equal(result.size.double().cpu(), sizes)
    assert torch.equal(result.values.double().cpu(), sizes * x[0, 0].numel())
    assert_close((*result.statistics, result.between), (*statistics, between))


@pytest.mark.parametrize("n", [2, 33])
def test_bounded_moments_of_far_values_and_ties(device, n):
    """Few examples are sorted, the quantiles of many are searched: ties, zeros of both signs, bad and far values."""
    x = (values(n, 7, 6, seed=n) - 5) / 3
    x[:, 1] = x[:, 1].round()
    x[:, 2] = 0.0
    x[: n // 2, 2] = -0.0
    x[:, 3] *= 1e6
    x[:, 4] -= 50.0
    x[:, 5] = torch.where(torch.arange(n)[:, None] % 3 == 0, 5.0, 0.0)
    x[0, 6] *= 1e3
    is_good = torch.ones(n, dtype=torch.bool)
    is_good[n // 3] = n == 2
    mean, var = example_moments(x.double(), EPS)
    clean_var = torch.full((7,), 0.5)
    expected = robust.robust_moments(mean, var, is_good, EPS, clean_var.double(), 0.01)
    x[~is_good, 0] = torch.nan
    result = BACKEND.moments(x.to(device), EPS, None, Bounds(0.5, clean_var.to(device), 0.01, None))
    # Where the means of examples cancel, as 268,299 and −268,170 in channel 3 for n = 2, their rounding is left.
    rounding = 2 * torch.finfo(torch.float32).eps * mean.abs().amax(0)
    for name in ("mean", "var", "between"):
        ours, theirs = getattr(result, name).double().cpu(), getattr(expected, name)
        allowed = 1e-5 + 1e-4 * theirs.abs() + (rounding if name == "mean" else 0.0)
        assert ((ours - theirs).abs() <= allowed).all(), (name, ours, theirs)


@pytest.mark.parametrize(("count", "examples"), [(2, 4), (7, 8), (33, 64), (700, 1024)])
def test_quantiles(device, count, examples):
    """`count` values, and infinite ones up to a power of two; also if many are the same."""
    from .quantile_kernel import compute_quantiles

    x = torch.full((2, 4, examples), torch.inf)
    x[:, :, :count] = torch.randn(2, 4, count, generator=torch.Generator().manual_seed(count))
    x[0, 1] = torch.where(x[0, 1].isfinite(), x[0, 1].round(), torch.inf)
    x[1, 2, :count] *= 1e30
    x[1, 3, :count] = torch.where(torch.arange(count) % 3 == 0, -0.0, 0.0)
    expected = x[:, :, :count].double().quantile(torch.tensor(robust.QUANTILES, dtype=torch.float64), dim=2)
    torch.testing.assert_close(
        compute_quantiles(x.to(device), count).double().cpu(), expected.transpose(0, 1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["batch", "groups", "streams"])
@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((12, 5), torch.contiguous_format),
        ((12, 7, 6), torch.contiguous_format),
        ((12, 16, 8, 8), torch.contiguous_format),
        ((12, 24, 5, 3), torch.channels_last),
        ((12, 260, 2, 3), torch.channels_last),
    ],
)
def test_normalise(device, shape, kind, layout):
    dtype = DTYPES[len(shape) % 3]
    x = batch(device, shape, dtype, layout)
    segments = None if kind == "batch" else segments_of(kind, 12)
    channels = shape[1:2] if segments is None else (segments.count, shape[1])
    generator = torch.Generator().manual_seed(1)
    statistics = [(torch.rand(channels, generator=generator) + 0.5).to(device) for _ in range(2)]
    weight, bias = (torch.rand(shape[1], generator=generator).to(device, dtype) for _ in range(2))
    weight = weight if len(shape) > 2 else None
    bias = bias if shape[1] != 24 else None
    y = BACKEND.normalise(x, Statistics(*statistics), weight, bias, EPS, segments)
    expected = normalise(*wide(x), Statistics(*wide(*statistics)), *wide(weight, bias), EPS, segments)
    assert (y.dtype, y.stride()) == (dtype, x.stride())
    tolerance = max(1e-5, torch.finfo(dtype).eps)
    torch.testing.assert_close(y.double().cpu(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_single_precision_keeps_its_digits_if_the_mean_is_ten_thousand_spreads(device, layout):
    x = (torch.randn(8, 20, 9, 9, generator=torch.Generator().manual_seed(1)) + 1e4).to(device)
    x = x.contiguous(memory_format=layout)
    y = BACKEND.normalise(x, BACKEND.moments(x, 1e-5, None, None).statistics, None, None, 1e-5, None)
    expected = normalise(*wide(x), Statistics(*moments(*wide(x), 1e-5)), None, None, 1e-5)
    rounding = 1e4 * 2**-24  # of the mean, in single precision
    torch.testing.assert_close(y.double().cpu(), expected, rtol=1e-4, atol=1e-4 + rounding)
