"""Networks by name, each with the preprocessing that belongs to its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from predbn.common import ModelError, look_up
from predbn.data import CIFAR10_CLASSES

from .normalisation import NORMALISATIONS
from .preprocessing import CAFFE, IMAGENET, SIGNED, Preprocessing
from .resnet import resnet20, resnet50


@dataclass(frozen=True)
class Architecture:
    """How to build a network without weights, its number of classes, and how its inputs are prepared."""

    name: str
    build: Callable[[], nn.Module]
    classes: int
    preprocessing: Preprocessing
    class_names: tuple[str, ...] = ()


def _resnet20(norm: str) -> Architecture:
    return Architecture(f"resnet20-cifar10/{norm}", lambda: resnet20(norm), 10, SIGNED, CIFAR10_CLASSES)


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        *(_resnet20(norm) for norm in NORMALISATIONS),
        Architecture("resnet50-v1", lambda: resnet50(), 1000, CAFFE),
        Architecture("resnet50-imagenet/batch", lambda: resnet50(eps=1e-5), 1000, IMAGENET),
    )
}


def find_architecture(name: str) -> Architecture:
    """The architecture with that name, or a ModelError that suggests the most similar one."""
    return look_up("architecture", ARCHITECTURES, name, error=ModelError)
