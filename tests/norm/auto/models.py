"""Small classifiers, and test images of CIFAR-10 in the order of their classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import predbn
from predbn.data import sample
from predbn.norm import predictor

from ..models import net


def images(n: int, seed: int = 0, shift: float = 0.0) -> Tensor:
    """Images of different colours, so that a network predicts different classes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, 6, 6, generator=generator) + 2 * torch.randn(n, 3, 1, 1, generator=generator) + shift


def classifier(classes: int = 5) -> nn.Module:
    model = net(classes=classes)
    with torch.no_grad():
        model.fc2.weight *= 10
        model.fc2.bias -= model(images(200, seed=1)).mean(0)
    return model


def calibrated(
    strategy: str = "auto(passes=3)", *, classes: int = 5, examples: int = 256, **options: object
) -> nn.Module:
    model = predbn.calibrate(classifier(classes), list(images(examples, seed=3).split(64)))
    return predictor(model, strategy, **{"robust": False, **options})


def shifted_images_of_few_classes() -> Tensor:
    """Images that the predictor finds to be shifted and of few classes."""
    x = images(100, seed=9, shift=3.0)
    with torch.no_grad():
        return x[calibrated()(x).argmax(1) == 4]


def calibrate_on_clean_images(model: nn.Module) -> nn.Module:
    return predbn.calibrate(model, list(sample("validation").images[:500].split(250)))


def accuracy_if_sorted(model: nn.Module, strategy: str, *, batch: int, every: int = 5, outputs: int = 1) -> float:
    """On every so many images in batches of one size, for a model that has so many outputs for each class."""
    test = sample("test")
    order = test.labels.argsort(stable=True)[::every]
    predict = predictor(model, strategy)
    predicted = torch.cat([predict(part) for part in test.images[order].split(batch)]).argmax(1) // outputs
    return float((predicted == test.labels[order]).float().mean())
