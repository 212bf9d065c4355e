"""Which rows of a layer's input belong to which example: models with several inputs, and layers with more rows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import predbn

from .models import images, randomise


class Scaled(nn.Module):
    """Takes a number for each channel beside its examples."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = randomise(nn.BatchNorm2d(3))

    def forward(self, scale: Tensor, x: Tensor) -> Tensor:
        return self.bn(x * scale.view(-1, *[1] * (x.dim() - 2)))


class Mirrored(Scaled):
    """Puts mirror images behind its batch."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(torch.cat([x, x.flip(-1)]))
        return (y[: len(x)] + y[len(x) :].flip(-1)) / 2


class Tokens(Scaled):
    """Predicts the columns of its images one by one, for queries that have a number of their own."""

    def forward(self, queries: Tensor, x: Tensor) -> Tensor:
        columns = x.movedim(-1, 1).flatten(0, 1)[..., None]
        return self.bn(columns).unflatten(0, (len(x), -1)).mean((1, 3, 4)) + queries.mean()


class Thinned(Scaled):
    """Normalises every second example only."""

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x[::2])


def mixed(model: Scaled, x: Tensor, n: int) -> Tensor:
    """`prior(N=4)` of n examples."""
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    mean, var = (torch.lerp(a, b, n / (n + 4)) for a, b in ((model.bn.running_mean, mean), (model.bn.running_var, var)))
    shape = (-1, 1, 1)
    y = (x - mean.view(shape)) / (var + model.bn.eps).sqrt().view(shape)
    return y * model.bn.weight.view(shape) + model.bn.bias.view(shape)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("compiled", [False, True])
@torch.no_grad()
def test_the_examples_may_be_in_any_input(size, compiled):
    model, x = predbn.adapt(Scaled().eval(), "prior(N=4)"), images(8)
    predict = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    scale = torch.ones(size)
    wanted = mixed(model, x, 8)
    for y in (predict(scale, x), predict(x=x, scale=scale), predict(scale=scale, x=x)):
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", ["x", 1])
@torch.no_grad()
def test_inputs_that_may_all_be_the_batch(batch):
    queries, x = torch.zeros(4, 3), images(8, size=4)
    with pytest.raises(predbn.AdaptationError, match="inputs with 4 and 8 rows, any of which may be the examples"):
        predbn.adapt(Tokens().eval(), "prior(N=4)")(queries, x)
    model = predbn.adapt(Tokens().eval(), "prior(N=4)", batch=batch)
    wanted = mixed(model, x, 8).mean((2, 3))
    for y in (model(queries, x), model(x=x, queries=queries)):
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", ["y", 2, -1, True, 1.0])
def test_inputs_that_a_model_does_not_have(batch):
    with pytest.raises(predbn.AdaptationError, match="no input of the model; give the name or position of one of: sca"):
        predbn.adapt(Scaled(), batch=batch)


@pytest.mark.parametrize("options", [{"group": 4}, {}])
@torch.no_grad()
def test_copies_of_the_batch_are_not_taken_for_tokens(options):
    model, x = predbn.adapt(Mirrored().eval(), "batch", **options), images(8)
    with pytest.raises(predbn.AdaptationError, match=r"16 rows for the 8 examples .* consecutive_rows=True"):
        predict(model, x, options)
    for part in x.split(4):  # one at a time
        together = torch.cat([part, part.flip(-1)])
        expected = nn.functional.batch_norm(together, None, None, model.bn.weight, model.bn.bias, True, 0.0)
        found = predbn.adapt(copy.deepcopy(model), "batch")(part)
        torch.testing.assert_close(found, (expected[:4] + expected[4:].flip(-1)) / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"group": 2}, {"group": 2, "consecutive_rows": True}, {}])
@torch.no_grad()
def test_fewer_rows_than_examples_have_no_known_group_or_stream(options):
    model, x = predbn.adapt(Thinned().eval(), "batch", **options), images(8)
    with pytest.raises(predbn.AdaptationError, match="4 rows for the 8 examples"):
        predict(model, x, options)


def predict(model: nn.Module, x: Tensor, options: dict[str, Any]) -> Tensor:
    if options:
        return model(x)
    with predbn.streams(model, [0, 1] * 4):
        return model(x)


@torch.no_grad()
def test_rows_of_tokens_that_follow_each_other():
    model, x = predbn.adapt(Tokens().eval(), "batch", consecutive_rows=True), images(8, size=4)
    queries, ids = torch.zeros(4, 3), torch.tensor([0, 1] * 4)
    with predbn.streams(model, ids):
        found = model(queries, x)
    for stream in (0, 1):
        rows = ids == stream
        torch.testing.assert_close(found[rows], model(queries[:1], x[rows]), rtol=1e-4, atol=1e-5)
