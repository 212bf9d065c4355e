"""What people complain about, in miniature: each case is a small network that has gone wrong in one known way.

The images are gratings of eight directions; their colour, contrast and brightness differ from image to image. Training
takes a second or two. Each case has data on which it is examined and the remedy that the doctor should name.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import predbn

CLASSES, SIZE = 8, 16


class Case(NamedTuple):
    """A network that has gone wrong: what it is examined with, what the doctor should find, and what fixes it.

    `expected` is the code of the problem, "" if there is none. `remedy` changes the model as the doctor says.
    """

    model: nn.Module
    expected: str
    remedy_name: str
    remedy: Callable[[nn.Module], object]
    test: tuple[Tensor, Tensor]
    reference: Tensor
    data: Tensor | None = None


def gratings(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images [N, 3, 16, 16] and their directions."""
    random = torch.Generator().manual_seed(seed)
    directions = torch.randint(0, CLASSES, (count,), generator=random)
    angle = (directions + 0.9 * (torch.rand(count, generator=random) - 0.5)) * math.pi / CLASSES
    frequency, phase = (
        0.8 + 0.6 * torch.rand(count, generator=random),
        2 * math.pi * torch.rand(count, generator=random),
    )
    place = torch.arange(float(SIZE))
    along = angle.cos()[:, None, None] * place[:, None] + angle.sin()[:, None, None] * place
    waves = (along * frequency[:, None, None] + phase[:, None, None]).sin()[:, None]
    colour, contrast = 0.3 + torch.rand(count, 3, 1, 1, generator=random), torch.rand(count, 1, 1, 1, generator=random)
    brightness = 0.7 * torch.randn(count, 3, 1, 1, generator=random)
    noise = 0.5 * torch.randn(count, 3, SIZE, SIZE, generator=random)
    return waves * colour * (0.3 + 1.4 * contrast) + brightness + noise, directions


def network(seed: int = 0) -> nn.Sequential:
    """Three convolutions with batch norm."""
    torch.manual_seed(seed)
    layers: dict[str, nn.Module] = {}
    for number, (inputs, outputs) in enumerate(((3, 16), (16, 32), (32, 32)), start=1):
        layers[f"conv{number}"] = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        layers[f"bn{number}"] = nn.BatchNorm2d(outputs)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"pool{number}"] = nn.MaxPool2d(2) if number < 3 else nn.AdaptiveAvgPool2d(1)
    layers |= {"flatten": nn.Flatten(), "fc": nn.Linear(32, CLASSES)}
    return nn.Sequential(OrderedDict(layers))


def train(
    model: nn.Module,
    steps: int = 200,
    *,
    batch: int = 32,
    rate: float = 0.05,
    after_step: Callable[[int], object] | None = None,
    change: Callable[[Tensor], Tensor] = lambda images: images,
    freeze: bool = False,
) -> nn.Module:
    """SGD on 2,000 images, which `change` may change; the rate falls to zero unless something looks at every step.

    With `freeze`, batch norm layers stay in `.eval()` mode.
    """
    images, labels = gratings(2000, seed=0)
    images = change(images)
    random = torch.Generator().manual_seed(1)
    optimiser = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    model.train()
    for layer in batch_norms(model) if freeze else ():
        layer.eval()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate if after_step else rate * (1 - step / steps)
        rows = torch.randint(0, len(images), (batch,), generator=random)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimiser.step()
        if after_step is not None:
            after_step(step)
    return model.eval()


def batch_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


@torch.no_grad()
def accuracy(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    images, labels = test
    return 100 * float((model(images).argmax(1) == labels).float().mean())


def clean() -> Tensor:
    """Clean images that no network was trained on."""
    return gratings(500, seed=2)[0]


def recompute(model: nn.Module) -> None:
    """What the doctor names for stale statistics: those of the whole training data."""
    predbn.recompute(model, gratings(2000, seed=0)[0].split(100))


RECOMPUTE = "recompute"
MAKERS: dict[str, Callable[[nn.Module], Case]] = {}


def _case(name: str) -> Callable[[Callable[[nn.Module], Case]], Callable[[nn.Module], Case]]:
    def add(make: Callable[[nn.Module], Case]) -> Callable[[nn.Module], Case]:
        MAKERS[name] = make
        return make

    return add


def make(name: str, trained: nn.Module) -> Case:
    """A case by name. `trained` is a healthy network from `train(network())`; it is copied."""
    return MAKERS[name](copy.deepcopy(trained))


def shift(images: Tensor) -> Tensor:
    """Another camera: less contrast, brighter, a colour cast."""
    return 0.4 * images + torch.tensor([1.5, 0.5, -0.5])[:, None, None]


def adapt(model: nn.Module) -> None:
    """What the doctor names for shifted data."""
    predbn.calibrate(model, clean().split(100))
    predbn.adapt(model, "auto")


def _on_clean_data(model: nn.Module, expected: str, remedy: Callable[[nn.Module], object] = recompute) -> Case:
    name = RECOMPUTE if remedy is recompute else ""
    return Case(model, expected, name, remedy, gratings(1000, seed=3), clean())


def _nothing(model: nn.Module) -> None:
    """The remedy of a healthy model."""


@_case("nothing")
def _healthy(model: nn.Module) -> Case:
    return _on_clean_data(model, "", _nothing)


@_case("weights averaged (SWA), statistics of one of them")
def _averaged(model: nn.Module) -> Case:
    """The mean of the weights over the last 120 of 200 steps with a high rate."""
    fresh = network()
    average = AveragedModel(fresh)
    train(fresh, rate=0.1, after_step=lambda step: average.update_parameters(fresh) if step >= 80 else None)
    return _on_clean_data(average.module.eval(), "stale")


@_case("statistics lost: 0 and 1")
def _reset(model: nn.Module) -> Case:
    for layer in batch_norms(model):
        layer.reset_running_stats()
    return _on_clean_data(model, "never updated")


@_case("statistics of the second layer mixed up")
def _mixed_up(model: nn.Module) -> Case:
    layer = batch_norms(model)[1]
    assert layer.running_mean is not None
    assert layer.running_var is not None
    order = torch.randperm(layer.num_features, generator=torch.Generator().manual_seed(4))
    layer.running_mean.copy_(layer.running_mean[order])
    layer.running_var.copy_(layer.running_var[order])
    return _on_clean_data(model, "stale")


@_case("fine-tuned in batches of two")
def _tiny_batches(model: nn.Module) -> Case:
    return _on_clean_data(train(model, 60, batch=2, rate=1e-4), "small batches")


@_case("trained from the start in batches of two")
def _tiny_batches_from_the_start(model: nn.Module) -> Case:
    """Statistics cannot fix this; the doctor also says to train on with larger batches."""
    tiny = train(network(), 400, batch=2, rate=0.01)
    case = _on_clean_data(tiny, "small batches", lambda model: train(model, 100, rate=0.01))
    return case._replace(remedy_name="train on with larger ones")


@_case("loaded with eps=1, trained with 1e-5")
def _wrong_eps(model: nn.Module) -> Case:
    _set_eps(model, 1.0)
    case = _on_clean_data(model, "wrong eps", lambda model: _set_eps(model, 1e-3))
    return case._replace(remedy_name="eps=1e-3")


@_case("frozen from the start (momentum=0)")
def _frozen_from_the_start(model: nn.Module) -> Case:
    fresh = network()
    for layer in batch_norms(fresh):
        layer.momentum = 0.0
    return _on_clean_data(train(fresh), "never updated")


@_case("nothing: fine-tuned to new data with frozen batch norm")
def _frozen_in_fine_tuning(model: nn.Module) -> Case:
    """The layers normalise with their stored statistics while the weights learn, so nothing is wrong with these."""
    tuned = train(model, 100, rate=0.02, change=shift, freeze=True)
    images, labels = gratings(1000, seed=3)
    return Case(tuned, "", "", _nothing, (shift(images), labels), shift(clean()))


@_case("data shifted: another camera")
def _shifted(model: nn.Module) -> Case:
    images, labels = gratings(1000, seed=3)
    return Case(model, "shifted", "auto", adapt, (shift(images), labels), clean(), shift(clean()))


NAMES = tuple(MAKERS)


def _set_eps(model: nn.Module, eps: float) -> None:
    for layer in batch_norms(model):
        layer.eps = eps
