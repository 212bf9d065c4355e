"""Runs so small that they end in a moment: tiny pictures, a network of eight layers, one thread."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from predbn.data import Images, sample
from predbn.training import Trainee, TrainingSet, produce
from predbn.training.produce import Sets

from .tiny import DEVICE, PICTURES, small_resnet


@pytest.fixture(autouse=True)
def _one_thread(_deterministic) -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def images() -> Images:
    """Twenty embedded pictures, two of each class, their middle alone."""
    every = sample("validation")
    chosen = every.take([int((every.labels == label).nonzero()[i]) for i in (0, 1) for label in range(10)])
    return replace(chosen, images=chosen.images[:, :, 12:20, 12:20])


@pytest.fixture(scope="session")
def sets(images) -> Sets:
    return Sets(images.take(16), images.take(range(16, 20)), images, DEVICE)


@pytest.fixture(scope="session")
def data(sets) -> TrainingSet:
    return sets.on_device


@pytest.fixture
def small_network(monkeypatch) -> None:
    """A ResNet of 8 layers for pictures of 8×8 wherever this room builds one of 20 for 32×32."""
    for function in (Trainee.__init__, produce):
        monkeypatch.setitem(function.__globals__, "resnet20", small_resnet)
        monkeypatch.setitem(function.__globals__, "SIGNED", PICTURES)
