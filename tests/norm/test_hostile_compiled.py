"""Rows that are not finite in compiled models: they cannot be looked at there, and change no other row anyway."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

import predbn

from .models import images, net
from .test_hostile_state import BAD
from .test_tokens_and_processes import Windows


@pytest.fixture(scope="module")
def calibrated() -> nn.Module:
    return predbn.calibrate(net(), [images(32, seed=9)])


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def predict(model: nn.Module, x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(x)


@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("batch", {}),
        ("prior(N=4)", {}),
        ("ema(momentum=0.5)", {}),
        ("frozen(batches=4)", {}),
        ("auto", {}),
        ("auto_stream", {}),
        ("batch", {"robust": True}),
        ("auto(calibrated=False)", {"robust": False}),
        ("prior(N=4)", {"group": 4}),
    ],
)
@torch.no_grad()
def test_bad_rows(calibrated, strategy, options, is_part):
    """As in the model that is not compiled: one row, then a whole batch."""
    model, eager = (predbn.adapt(copy.deepcopy(calibrated), strategy, **options) for _ in range(2))
    compiled = torch.compile(nn.Sequential(model) if is_part else model, backend="eager", fullgraph=True)
    for step, bad in enumerate([[], [3], range(8), []]):
        x = images(8, seed=step, shift=float(step))
        x[list(bad), 1, -1, 0] = BAD[("nan", "inf")[step % 2]]
        good = [i for i in range(8) if i not in bad]
        torch.testing.assert_close(predict(compiled, x)[good], predict(eager, x)[good], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_bad_token():
    model = predbn.adapt(Windows().eval(), "prior(N=4)")
    compiled, x = torch.compile(copy.deepcopy(model), backend="eager", fullgraph=True), images(8)
    x[3, 1, -1, 0] = float("nan")
    torch.testing.assert_close(compiled(x), predict(model, x), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("strategy", ["frozen", "ema"])
@torch.no_grad()
def test_a_first_batch_without_a_good_row(strategy):
    """Where the graph contains the whole call, there is no state yet that it could leave as it is."""
    model, clean = predbn.adapt(net(), strategy), predbn.adapt(net(), strategy)
    compiled = torch.compile(nn.Sequential(model), backend="eager", fullgraph=True)
    with pytest.raises(RuntimeError, match="the first batch of a stream has no finite example"):
        compiled(images(8) * float("nan"))
    torch.testing.assert_close(compiled(images(8)), clean(images(8)), rtol=1e-4, atol=1e-5)
