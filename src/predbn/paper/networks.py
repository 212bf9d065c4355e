"""The CIFAR-10 networks of the paper: their names in the zoo, and which of them the zoo has.

`predbn.adapt` changes the eps of batch norm layers. The paper also varies the eps of instance, layer and group
normalisation; such a network is named like ``zoo:resnet20-cifar10/instance[eps=0.1]/0``.
"""

from __future__ import annotations

import re

from torch import nn

from predbn.evaluation import Model
from predbn.models import Classifier, ModelError, load

_ZOO = "zoo:resnet20-cifar10"
WITH_BATCH_NORM = f"{_ZOO}/batch"
NORMALISED = (f"{_ZOO}/instance", f"{_ZOO}/layer", f"{_ZOO}/group")
FIXUP = f"{_ZOO}/fixup"
ONE_LAYER = f"{_ZOO}/last"

_WITH_EPS = re.compile(r"(.+)\[eps=([^\]]+)\]/(\d+)")


def seeds_of(network: str, count: int) -> list[str]:
    """The references of the first `count` seeds of a network."""
    return [f"{network}/{seed}" for seed in range(count)]


def reference_with_eps(reference: str, eps: float) -> str:
    """The name of a network with another eps in its normalisation layers."""
    network, _, seed = reference.rpartition("/")
    return f"{network}[eps={eps}]/{seed}"


def missing_weights(model: Model) -> str | None:
    """The zoo name of the weights that a model needs and the zoo does not have; None if it has them."""
    match = _WITH_EPS.fullmatch(model.reference)
    reference = f"{match[1]}/{match[3]}" if match else model.reference
    try:
        Model(reference).members()
    except ModelError:
        return reference.removeprefix("zoo:")
    return None


def load_eps_variants(models: tuple[Model, ...]) -> dict[str, Classifier]:
    """The networks whose name changes their eps, by name; the others are loaded by the evaluation itself."""
    variants = {}
    for model in models:
        match = _WITH_EPS.fullmatch(model.reference)
        if match:
            classifier = load(f"{match[1]}/{match[3]}")
            for module in classifier.modules():
                if isinstance(module, nn.InstanceNorm2d | nn.GroupNorm):
                    module.eps = float(match[2])
            variants[model.name] = classifier
    return variants
