"""The batch size of a training, from the variances that it left."""

from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from predbn.diagnostics.training_batches import training_batches


class Layer(NamedTuple):
    running_var: Tensor
    eps: float = 1e-5


@cache
def variances(batch: int, *, seed: int = 0, examples: int = 4000, channels: int = 64) -> Tensor:
    """The mean unbiased variance within batches of examples with 25 positions, which differ more in later channels."""
    random = torch.Generator().manual_seed(seed)
    spread = torch.linspace(0.1, 1.5, channels, dtype=torch.float64)
    centres = spread[:, None] * torch.randn(examples, channels, 1, generator=random, dtype=torch.float64)
    values = centres + torch.randn(examples, channels, 25, generator=random, dtype=torch.float64)
    rows = values.unflatten(0, (-1, batch)).transpose(1, 2).flatten(2)
    return rows.var(2).mean(0)


@pytest.mark.parametrize("size", [2, 4])
def test_small_batches_are_recognised(size: int) -> None:
    whole, pairs, stored = variances(4000), variances(2), variances(size, seed=1)
    batches = training_batches({"bn": whole}, {"bn": pairs}, {"bn": Layer(stored)})
    assert batches is not None
    assert batches.are_small
    assert batches.are_tiny == (size == 2)
    assert batches.size == pytest.approx(size, rel=0.35)


def test_large_batches_are_not() -> None:
    batches = training_batches({"bn": variances(4000)}, {"bn": variances(2)}, {"bn": Layer(variances(100, seed=1))})
    assert batches is not None
    assert not batches.are_small


def test_examples_that_do_not_differ_determine_nothing() -> None:
    same = {"bn": torch.ones(8, dtype=torch.float64)}
    assert training_batches(same, same, {"bn": Layer(same["bn"])}) is None
    assert training_batches(same, {}, {"bn": Layer(same["bn"])}) is None
