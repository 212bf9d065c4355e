"""The networks of the paper's CIFAR-10 experiments: which they are, and which of them are here.

`predbn.adapt` changes the eps of batch norm layers; instance, layer and group normalisation have one too, and the
paper varies it as well. Such a network is named as in ``zoo:resnet20-cifar10/instance[eps=0.1]/0``.
"""

from __future__ import annotations

import re

from torch import nn

from predbn.evaluation import Model
from predbn.models import Classifier, ModelError, load

__all__ = [
    "FIXUP",
    "NORMALISED",
    "ONE_LAYER",
    "WITH_BATCH_NORM",
    "missing",
    "open_variants",
    "seeds_of",
    "with_eps",
]

_ZOO = "zoo:resnet20-cifar10"
WITH_BATCH_NORM = f"{_ZOO}/batch"
NORMALISED = (f"{_ZOO}/instance", f"{_ZOO}/layer", f"{_ZOO}/group")
FIXUP = f"{_ZOO}/fixup"
ONE_LAYER = f"{_ZOO}/last"

_VARIANT = re.compile(r"(.+)\[eps=([^\]]+)\]/(\d+)")


def seeds_of(network: str, count: int) -> list[str]:
    """The references of the first networks of a kind."""
    return [f"{network}/{seed}" for seed in range(count)]


def with_eps(reference: str, eps: float) -> str:
    """The name of a network with another eps in its normalisation."""
    network, _, seed = reference.rpartition("/")
    return f"{network}[eps={eps}]/{seed}"


def missing(model: Model) -> str | None:
    """What the zoo lacks of a model of a plan, or None where it has it."""
    variant = _VARIANT.fullmatch(model.reference)
    reference = f"{variant[1]}/{variant[3]}" if variant else model.reference
    try:
        Model(reference).members()
    except ModelError:
        return reference.removeprefix("zoo:")
    return None


def open_variants(models: tuple[Model, ...]) -> dict[str, Classifier]:
    """The networks whose eps is not the one that they were trained with, by name."""
    found = {}
    for model in models:
        variant = _VARIANT.fullmatch(model.reference)
        if variant:
            classifier = load(f"{variant[1]}/{variant[3]}")
            for module in classifier.modules():
                if isinstance(module, nn.InstanceNorm2d | nn.GroupNorm):
                    module.eps = float(variant[2])
            found[model.name] = classifier
    return found
