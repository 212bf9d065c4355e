"""Runs so small that they end in a moment: tiny images, a network of eight layers, one thread."""

from dataclasses import replace

import pytest

from predbn.data import Images, sample
from predbn.training import Cifar10Data
from predbn.training.cifar10 import trainer

from .tiny import DEVICE, PREPROCESSING, small_resnet


@pytest.fixture(scope="session")
def images() -> Images:
    """The centres of twenty embedded images, two of each class."""
    every = sample("validation")
    chosen = every.take([int((every.labels == label).nonzero()[i]) for i in (0, 1) for label in range(10)])
    return replace(chosen, images=chosen.images[:, :, 12:20, 12:20])


@pytest.fixture(scope="session")
def data(images) -> Cifar10Data:
    return Cifar10Data(images.take(16), images.take(range(16, 20)), images, DEVICE)


@pytest.fixture
def small_network(monkeypatch) -> None:
    """A ResNet of 8 layers for 8×8 images in place of one of 20 layers for 32×32."""
    monkeypatch.setattr(trainer, "resnet20", small_resnet)
    monkeypatch.setattr(trainer, "SIGNED", PREPROCESSING)
