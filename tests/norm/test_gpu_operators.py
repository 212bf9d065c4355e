"""The operators of compiled networks, called again with other memory; `test_interpreted.py` runs them without a GPU."""

from __future__ import annotations

import threading

import pytest
import torch

from predbn.norm.calibration import Calibration
from predbn.norm.gpu import operators
from predbn.norm.robust import correct_clipping, robust_moments
from predbn.norm.statistics import Statistics
from predbn.norm.strategies.auto import mixture

from ..models.kernels.conftest import bench
from .test_gpu_kernels import clean_data

__all__ = ["bench"]


@pytest.fixture(autouse=True)
def _triton():
    pytest.importorskip("triton", reason="Triton is not installed")


def image_batches(device, *shape, count=3):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):  # all are kept, so that each has memory of its own
        x = torch.randn(shape, generator=generator) * 2 + 1
        yield x.to(device).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("groups", [1, 3])
def test_moments_of_one_batch_after_the_other(bench, groups):
    batches = list(image_batches(bench.device, 6, 40, 5, 4))
    results = [operators.moments(x, groups) for x in batches]
    for x, found in zip(batches, results, strict=True):
        wide = x.double().unflatten(0, (groups, -1))
        var, mean = torch.var_mean(wide, (1, 3, 4), correction=0)
        torch.testing.assert_close(found.double(), torch.stack([mean, var]), rtol=1e-5, atol=1e-5)


def test_a_tensor_that_is_not_dense_or_not_aligned(bench):
    shape = 6, 40, 5, 4
    values = torch.randn(1 + 6 * 40 * 5 * 4, generator=torch.Generator().manual_seed(5)).to(bench.device)
    shifted = values[1:].view(shape)
    aligned = shifted.clone()
    assert shifted.data_ptr() % 16
    assert not aligned.data_ptr() % 16
    for x in image_batches(bench.device, *shape):
        for part in (x[:, ::2], x[:, :, 1:], x[1:, 1:], shifted, aligned):
            var, mean = torch.var_mean(part.double(), (0, 2, 3), correction=0)
            found = operators.moments(part, 1)[:, 0]
            torch.testing.assert_close(found.double(), torch.stack([mean, var]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("is_affine", [False, True])
def test_mixed_moments_against_double_precision(bench, is_affine, is_mixed, share, dtype):
    generator, channels, n, source_size, eps = torch.Generator().manual_seed(4), 40, 6, 16.0, 1e-3
    rows = (torch.rand(4, channels, generator=generator) + 0.5).to(bench.device, dtype)
    reference, affine = rows[:2] if is_mixed else (None, None), rows[2:] if is_affine else (None, None)
    for x in image_batches(bench.device, n, channels, 5, 4):
        x = x.to(dtype)
        found = operators.mixed_moments(x, *reference, share, source_size, *affine, eps).double()
        var, mean = torch.var_mean(x.double(), (0, 2, 3), correction=0)
        expected = [mean, var]
        weight = 1.0 if not is_mixed else n / (n + source_size) if share is None else share
        if is_mixed:
            mean, var = (
                own.double() + weight * (m - own.double()) for own, m in zip(reference, (mean, var), strict=True)
            )
        scale = (var + eps).rsqrt() * (affine[0].double() if is_affine else 1.0)
        shift = (affine[1].double() if is_affine else 0.0) - mean * scale
        torch.testing.assert_close(found, torch.stack([*expected, mean, var, scale, shift]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("corrected", [False, True, "as far as classes are even"])
@pytest.mark.parametrize("groups", [1, 2])
def test_bounded_moments_of_one_batch_after_the_other(bench, groups, corrected):
    generator, n, channels, eps = torch.Generator().manual_seed(1), 8, 12, 1e-3
    clean = clean_data(lambda *shape: torch.rand(shape, generator=generator) + 0.1, channels)
    scatter, clipping = clean.scatter.to(bench.device), clean.clipping.to(bench.device) if corrected else None
    batches = list(image_batches(bench.device, groups * n, channels, 4, 3))
    batches[1][2] = torch.nan
    evenness = torch.rand(groups, 1, generator=generator) if isinstance(corrected, str) else torch.ones(groups, 1)
    of_groups = evenness.to(bench.device) if isinstance(corrected, str) else None
    arguments = groups, eps, 0.5, clean.var.to(bench.device), scatter, clipping, of_groups
    results = [operators.bounded_moments(x, *arguments) for x in batches]
    for x, (tables, count) in zip(batches, results, strict=True):
        for group, part in enumerate(x.double().cpu().split(n)):
            var, mean = torch.var_mean(part, (2, 3), correction=0)
            is_finite = mean.isfinite().all(1)
            found = robust_moments(mean, var, is_finite, eps, clean.var.double(), clean.scatter.double(), None, 0.5)
            expected = Statistics(found.mean, found.var)
            if corrected:
                even = float(evenness[group])
                expected = correct_clipping(found, clean.clipping.double(), int(is_finite.sum()), even)
            assert float(count[group]) == int(is_finite.sum())
            for ours, wanted in zip(tables[:2, group].double().cpu(), expected, strict=True):
                torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("with_classes", [False, True])
@pytest.mark.parametrize("groups", [None, 3])
@pytest.mark.parametrize("counted", [False, True])
def test_mixture_against_its_equations(bench, counted, groups, with_classes):
    generator, channels, n, eps = torch.Generator().manual_seed(2), 37, 20, 1e-3
    shape = (channels,) if groups is None else (groups, channels)

    def random(*size):
        return torch.rand(size, generator=generator) + 0.1

    # Stored statistics may be in half precision.
    clean, source = clean_data(random, channels), Statistics(random(channels).half(), random(channels).half())
    for _ in range(3):
        batch = Statistics(random(*shape), random(*shape))
        count = torch.full((1,) if groups is None else (groups, 1), float(n)) if counted else None
        of_classes = random(*((1,) if groups is None else (groups, 1))) if with_classes else None
        tensors = *batch, count, of_classes, clean.mean, clean.var, clean.weight, *source
        on_device = [None if t is None else t.to(bench.device) for t in tensors]
        affine = [random(channels).half() for _ in range(2)] if counted else [None, None]
        given = [None if t is None else t.to(bench.device) for t in affine]
        found = operators.mixture(*on_device, *given, 0 if counted else n, eps, clean.offset, 0.9, 0.01, 2.0, 0.1)
        sampling = 0.9 / n + 0.01 + (0.0 if of_classes is None else of_classes.double())
        wide, own = (Statistics(*(t.double() for t in each)) for each in (batch, source))
        expected = mixture(wide, clean.to(own.mean), own, eps, sampling, 0.1 * (1 - 1 / n), 2.0 / (n + 1))
        scale = (expected.var + eps).rsqrt() * (affine[0].double() if counted else 1.0)
        shift = (affine[1].double() if counted else 0.0) - expected.mean * scale
        wanted = torch.stack([*expected, scale, shift])
        torch.testing.assert_close(found.double().cpu(), wanted, rtol=1e-4, atol=1e-4)


def test_inputs_that_are_the_same_tensor_are_not_taken_for_each_other(bench):
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.rand(16, generator=generator).to(bench.device) + 0.1 for _ in range(7)]
    numbers = 8, 1e-3, 0.1, 1.0, 0.01, 2.0, 0.0

    def mixed(mean, var, clean_mean, clean_var, weight, source_mean, source_var):
        found = operators.mixture(
            mean, var, None, None, clean_mean, clean_var, weight, source_mean, source_var, None, None, *numbers
        )[:2]
        clean = Calibration(100, 1.0, 0.2, 0.1, clean_mean, clean_var, weight)
        source, batch = Statistics(source_mean, source_var), Statistics(mean, var)
        expected = mixture(batch, clean, source, 1e-3, 1 / 8 + 0.01, 0.0, 2.0 / 9)
        torch.testing.assert_close(found, torch.stack(list(expected)), rtol=1e-4, atol=1e-4)

    mixed(*tensors[:2], *tensors[2:5], tensors[2], tensors[3])
    mixed(*tensors)
    mixed(*tensors[:2], *tensors[2:5], tensors[2], tensors[3])
    mixed(*tensors)


def test_threads_that_call_an_operator_at_the_same_time(bench):
    batches = list(image_batches(bench.device, 4, 16, 3, 3, count=8))
    expected = [operators.moments(x, 1) for x in batches]
    wrong = []

    def call(x, wanted):
        for _ in range(10):
            found = operators.moments(x, 1)
            if not torch.equal(found, wanted):
                wrong.append(found)

    threads = [threading.Thread(target=call, args=each) for each in zip(batches, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
