"""Networks by name, each with the preprocessing that belongs to its weights."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from predbn.common import ModelError

from .normalisation import NORMALISATIONS
from .preprocessing import CAFFE, IMAGENET, SIGNED, Preprocessing
from .resnet import resnet20, resnet50

__all__ = ["ARCHITECTURES", "Architecture", "find"]


@dataclass(frozen=True)
class Architecture:
    """How to build a network without weights, how many classes it has, and what it takes."""

    name: str
    build: Callable[[], nn.Module]
    classes: int
    preprocessing: Preprocessing


def _resnet20(norm: str) -> Architecture:
    return Architecture(f"resnet20-cifar10/{norm}", lambda: resnet20(norm), 10, SIGNED)


ARCHITECTURES = {
    entry.name: entry
    for entry in (
        *(_resnet20(norm) for norm in NORMALISATIONS),
        Architecture("resnet50-v1", lambda: resnet50(), 1000, CAFFE),
        Architecture("resnet50-imagenet/batch", lambda: resnet50(eps=1e-5), 1000, IMAGENET),
    )
}


def find(name: str) -> Architecture:
    """The architecture of that name, or a ModelError that names the nearest."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    near = difflib.get_close_matches(name, ARCHITECTURES, 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ModelError(f"There is no architecture {name!r}: there are {', '.join(ARCHITECTURES)}{hint}")
