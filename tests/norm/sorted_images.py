"""Test images of CIFAR-10 in the order of their classes, and what a network of the zoo makes of them."""

from __future__ import annotations

import torch
from torch import nn

import predbn
from predbn.data import sample


def calibrate_on_clean_images(model: nn.Module) -> nn.Module:
    return predbn.calibrate(model, list(sample("validation").images[:500].split(250)))


def accuracy_if_sorted(model: nn.Module, strategy: str, *, batch: int, every: int = 5, outputs: int = 1) -> float:
    """On every so many images in batches of one size, for a model that has so many outputs for each class."""
    test = sample("test")
    order = test.labels.argsort(stable=True)[::every]
    predbn.adapt(model, strategy)
    predicted = torch.cat([model(part) for part in test.images[order].split(batch)]).argmax(1) // outputs
    return float((predicted == test.labels[order]).float().mean())
