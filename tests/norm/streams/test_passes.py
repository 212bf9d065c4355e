"""A pass changes the state of a stream as a whole, or not at all."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import predbn
from predbn.norm.call import watched

from ..models import images, net, randomise


class Failing(nn.Module):
    """After its first layer it raises an error, or its second layer refuses a batch of one value per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.BatchNorm2d(3), nn.BatchNorm1d(3)
        self.error: BaseException | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.error is not None:
            raise self.error
        return self.last(x.mean((2, 3)))


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
@pytest.mark.parametrize("strategy", ["frozen", "ema", "auto_stream(calibrated=False)"])
@torch.no_grad()
def test_a_pass_that_fails_leaves_no_trace(strategy, error):
    failing, clean = (predbn.adapt(randomise(Failing()).eval(), strategy) for _ in range(2))
    for seed in range(3):
        failing.error = error
        with pytest.raises(type(error)):
            failing(images(8, seed=9, shift=5.0))
        failing.error = None
        try:  # as one does who catches an error of memory, and predicts half as much
            raise KeyError
        except KeyError:
            assert torch.equal(failing(images(4, seed=seed)), clean(images(4, seed=seed)))
    with ThreadPoolExecutor(1) as executor:  # nothing is locked
        assert executor.submit(torch.no_grad()(failing), images(4)).result(10).shape == (4, 3)


@pytest.mark.parametrize("strategy", ["frozen", "frozen(batches=2)", "ema(start='first')"])
@torch.no_grad()
def test_a_refused_batch_leaves_no_trace(strategy):
    refusing, clean = (predbn.adapt(randomise(Failing()).eval(), strategy) for _ in range(2))
    with pytest.raises(predbn.AdaptationError, match="no variance"):
        refusing(images(1, shift=9.0))
    for seed in range(3):
        assert torch.equal(refusing(images(4, seed=seed)), clean(images(4, seed=seed)))


class Recursive(nn.Module):
    """Averages the predictions of an image and its mirror image."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x: Tensor, mirror: bool = True) -> Tensor:
        return (self(x, False) + self(x.flip(3), False)) / 2 if mirror else self.bn(x)


@torch.no_grad()
def test_a_model_that_calls_itself_is_one_pass():
    model = predbn.adapt(randomise(Recursive()).eval(), "frozen(batches=2)")
    model(images(4, shift=2.0))
    state = predbn.state_dict(model)["streams"]["default"]["bn"]
    assert state["values"] == 2 * 4 * 36
    assert state["passes"] == 1


class Domains(nn.Module):
    """Domain-specific batch norm: one branch per domain."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3)])

    def forward(self, x: Tensor, domain: int) -> Tensor:
        return self.branches[domain](x)


@torch.no_grad()
def test_frozen_freezes_every_branch():
    model = predbn.adapt(randomise(Domains()).eval(), "frozen")
    model(images(4, seed=0), 0)
    model(images(4, seed=1), 1)
    wanted = predbn.adapt(nn.Sequential(copy.deepcopy(predbn.restore(copy.deepcopy(model)).branches[1])), "frozen")
    wanted(images(4, seed=1))
    for seed in (2, 3):
        assert torch.equal(model(images(4, seed=seed, shift=3.0), 1), wanted(images(4, seed=seed, shift=3.0)))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("strategy", ["ema", "frozen", "frozen(batches=2)", "auto_stream(calibrated=False)"])
def test_activation_checkpointing_counts_a_batch_once(strategy, reentrant):
    plain, again = predbn.adapt(net(), strategy), predbn.adapt(net(), strategy)
    for seed in range(3):
        x, y = (images(4, seed=seed).requires_grad_() for _ in range(2))
        plain(x).square().sum().backward()
        checkpoint(again, y, use_reentrant=reentrant).square().sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
    with torch.no_grad():
        torch.testing.assert_close(again(images(4, seed=5)), plain(images(4, seed=5)))


@torch.no_grad()
def test_hooks_of_passes_are_copied_and_removed_with_the_adaptation():
    model = predbn.adapt(net(), "frozen")
    copied = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    for seed in range(3):
        assert torch.equal(copied(images(seed=seed)), model(images(seed=seed)))
    with predbn.adapted(model, "batch"):
        assert [calls.adaptation.strategy.name for _, calls in watched(model)] == ["batch"]
    assert [(module, calls.adaptation.strategy.name) for module, calls in watched(model)] == [(model, "frozen")]
    for plain in (predbn.fold(model), predbn.restore(model)):
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in plain.modules())
