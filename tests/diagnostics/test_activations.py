"""Recorded activations are what a hook would see, for any kind of layer; the model stays as it was."""

import copy

import pytest
import torch
from torch import Tensor, nn

import predbn
from predbn.diagnostics.activations import ActivationRecorder

from ..norm.models import images, net, randomise

STRATEGIES = ["train", "batch", "ema"]


def run(model: nn.Module, x: Tensor, strategy: str = "train", **options) -> dict[str, Tensor]:
    return ActivationRecorder(model, strategy, **options).run(x)[1]


def with_hooks(model: nn.Module, strategy: str, batches: list[Tensor]) -> list[dict[str, Tensor]]:
    """Spatial means of the outputs, read by hooks: the slow obvious way."""
    outputs: list[dict[str, Tensor]] = []
    handles = [
        layer.register_forward_hook(
            lambda _, __, y, name=name: outputs[-1].update({name: y.flatten(2).mean(2) if y.dim() > 2 else y.clone()})
        )
        for name, layer in model.named_modules()
        if name.startswith("bn")
    ]
    with torch.no_grad(), predbn.adapted(model, strategy):
        for x in batches:
            outputs.append({})
            model(x)
    for handle in handles:
        handle.remove()
    return outputs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_it_records_what_hooks_see(strategy):
    model = net()
    batches = [images(8, seed=seed, shift=seed) for seed in range(3)]
    recorder = ActivationRecorder(model, strategy)
    for x, expected in zip(batches, with_hooks(model, strategy, batches), strict=True):
        examples, recorded = recorder.run(x)
        assert examples == 8
        assert list(recorded) == ["bn1", "bn2", "bn3", "embeddings", "logits"]
        for name, values in expected.items():
            torch.testing.assert_close(recorded[name], values, rtol=1e-5, atol=1e-5)


class Activated(nn.BatchNorm2d):
    """A layer with a built-in non-linearity, of a class that predbn does not know."""

    def forward(self, input: Tensor) -> Tensor:
        return torch.relu(super().forward(input)) + 7


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_before_a_built_in_activation(strategy):
    timm = pytest.importorskip("timm.layers")
    for fused in (randomise(timm.BatchNormAct2d(4)), randomise(Activated(4))):
        plain = nn.BatchNorm2d(4)
        plain.load_state_dict(fused.state_dict())
        x = torch.randn(6, 4, 5, 5)
        with torch.no_grad(), predbn.adapted(plain.eval(), strategy):
            expected = plain(x).mean((2, 3))
        (recorded,) = run(nn.Sequential(fused), x, strategy).values()
        assert (recorded < 0).any()
        torch.testing.assert_close(recorded, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adapted_before", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_exactly_as_it_was(adapted_before, fails):
    model = net().train()
    model.bn2.eval()
    if adapted_before:
        predbn.adapt(model, "ema", momentum=0.3)
    state, flags = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    classes, attached = [type(m) for m in model.modules()], [m.__dict__.get("_predbn") for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    recorder = ActivationRecorder(model, "batch", layers="bn1")
    x = images(4)
    if fails:
        with pytest.raises(RuntimeError):
            recorder.run(x[:, :2])
    else:
        recorder.run(x)
    assert [type(m) for m in model.modules()] == classes
    assert [m.__dict__.get("_predbn") for m in model.modules()] == attached
    assert [m.training for m in model.modules()] == flags
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()] == hooks
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())


def test_layers_that_are_not_adapted_are_recorded_too():
    model, x = net(), images(8, shift=2.0)
    recorded = run(model, x, "batch", layers="last")
    torch.testing.assert_close(recorded["bn1"], run(model, x)["bn1"])
    assert list(run(model, x, "batch", outputs=False)) == ["embeddings", "logits"]


def test_a_model_without_logits():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    assert list(run(model, images(4))) == ["1"]


def test_without_batch_norm_only_train_makes_sense():
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 3))
    assert run(model, images(4))["embeddings"].shape == (4, 108)
    with pytest.raises(predbn.AdaptationError, match="no batch norm layer"):
        ActivationRecorder(model, "batch")
