"""A pass changes the state of a stream as a whole, or not at all."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import predbn
from predbn.norm.call import watched

from ..models import images, net, randomise


class Refusing(nn.Module):
    """Its second layer refuses a batch of one value per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.BatchNorm2d(3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).mean((2, 3)))


@pytest.mark.parametrize("strategy", ["frozen", "frozen(batches=2)", "ema(start='first')"])
@torch.no_grad()
def test_a_refused_batch_leaves_no_trace(strategy):
    refusing, clean = (predbn.adapt(randomise(Refusing()).eval(), strategy) for _ in range(2))
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


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_in_a_stream_whose_block_is_closed(reentrant):
    plain, again = predbn.adapt(net(), "ema(momentum=0.5)"), predbn.adapt(net(), "ema(momentum=0.5)")
    for seed in range(3):
        x, y = (images(4, seed=seed).requires_grad_() for _ in range(2))
        plain(x).square().sum().backward()
        with predbn.stream(again, "camera"):
            output = checkpoint(again, y, use_reentrant=reentrant)
        output.square().sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
    with predbn.stream(again, "other"):
        output = checkpoint(again, y, use_reentrant=reentrant).sum()
    with pytest.raises(predbn.AdaptationError, match="unknown which one that was; call backward in the block"):
        output.backward(retain_graph=True)
    with predbn.stream(again, "other"):
        output.backward()


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
