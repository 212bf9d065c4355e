"""Random numbers depend on the image alone, and have the distributions that they should have."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from predbn.common import Draws, derive_seed

METHODS = {
    "bits": lambda d: d.bits(3, 5),
    "bits16": lambda d: d.bits16(3, 5),
    "uniform": lambda d: d.uniform(3, 5),
    "normal": lambda d: d.normal(3, 5),
    "integers": lambda d: d.integers(-4, 9, 3, 5),
}


@pytest.mark.parametrize("method", METHODS)
@given(index=st.lists(st.integers(0, 2**40), min_size=1, max_size=12), seed=st.integers(-(2**70), 2**70))
@settings(max_examples=25, deadline=None)
def test_a_draw_depends_on_its_image_alone(method: str, index: list[int], seed: int) -> None:
    together = METHODS[method](Draws(seed, "fog", 3, torch.tensor(index)))
    alone = [METHODS[method](Draws(seed, "fog", 3, torch.tensor([i]))) for i in index]
    assert together.shape == (len(index), 3, 5)
    assert torch.equal(together, torch.cat(alone))


def test_normals_do_not_depend_on_the_split_or_the_threads() -> None:
    index = torch.arange(300)
    whole = Draws(0, "n", 1, index).normal(3, 31, 33)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        parts = torch.cat([Draws(0, "n", 1, part).normal(3, 31, 33) for part in index.split(7)])
        assert torch.equal(whole, parts)


@pytest.mark.parametrize("other", [(1, "fog", 1, 0), (0, "snow", 1, 0), (0, "fog", 2, 0), (0, "fog", 1, 1)], ids=str)
def test_every_part_of_the_key_matters(other: tuple[int, str, int, int]) -> None:
    def words(seed: int, name: str, severity: int, index: int) -> torch.Tensor:
        return Draws(seed, name, severity, torch.tensor([index])).bits(1000)

    agree = (words(0, "fog", 1, 0) == words(*other)).sum()
    assert agree == 0


def test_the_numbers_stay_what_they_are() -> None:
    """A change here changes every corrupted data set that anyone has made."""
    words = Draws(0, "fog", 1, torch.tensor([0, 12345])).bits(3)
    assert words.tolist() == [[-643059605, -1993576072, -1932731507], [-755521287, 1117087476, -1181343395]]
    assert derive_seed(0, "fog", 1) == 12077925714424093732


def test_words_are_uniform_in_every_byte_and_in_pairs() -> None:
    words = Draws(1, "x", 1, torch.arange(1000)).bits(4096).numpy().view(np.uint32)
    for shift in (0, 8, 16, 24):
        counts = np.bincount(((words >> shift) & 255).ravel(), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    top = (words >> 24).astype(np.int64)
    for pairs in (top[:, ::2] * 256 + top[:, 1::2], top[::2] * 256 + top[1::2]):
        assert stats.chisquare(np.bincount(pairs.ravel(), minlength=65536)).pvalue > 1e-4


def test_uniform_and_normal_have_their_distributions() -> None:
    uniform = Draws(2, "x", 1, torch.arange(200)).uniform(1000)
    assert uniform.dtype == torch.float32
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert stats.kstest(uniform.flatten().numpy(), "uniform").pvalue > 1e-3
    normal = Draws(2, "x", 1, torch.arange(200)).normal(1001)
    assert normal.shape == (200, 1001)
    assert stats.kstest(normal.flatten().numpy(), "norm").pvalue > 1e-3
    far = Draws(2, "tail", 1, torch.arange(1000)).normal(4000).abs()
    expected = 4e6 * 2 * stats.norm.sf(4.5)
    assert abs((far > 4.5).sum() - expected) < 5 * expected**0.5


def test_integers_fill_their_range_evenly() -> None:
    values = Draws(4, "x", 1, torch.arange(100)).integers(-3, 4, 1000)
    assert values.dtype == torch.int64
    counts = torch.bincount(values.flatten() + 3, minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.gpu
def test_a_gpu_draws_the_same() -> None:
    index = torch.arange(50)
    for method in ("bits", "bits16", "uniform", "integers"):
        on_gpu = METHODS[method](Draws(0, "fog", 1, index, "cuda"))
        assert torch.equal(on_gpu.cpu(), METHODS[method](Draws(0, "fog", 1, index)))
    on_gpu = METHODS["normal"](Draws(0, "fog", 1, index, "cuda"))
    assert torch.allclose(on_gpu.cpu(), METHODS["normal"](Draws(0, "fog", 1, index)), atol=1e-5)
