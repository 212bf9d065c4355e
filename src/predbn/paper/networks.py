"""The CIFAR-10 networks of the paper: their names, and where they are, in the zoo or in a folder of trained networks.

`predbn.adapt` changes the eps of batch norm layers. The paper also varies the eps of instance, layer and group
normalisation; such a network is named like ``zoo:resnet20-cifar10/instance[eps=0.1]/0``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from torch import nn

from predbn.common import NotMeasured, PaperError, read_json
from predbn.evaluation import Model
from predbn.models import Classifier, ModelError, load

_ZOO = "zoo:resnet20-cifar10"
WITH_BATCH_NORM = f"{_ZOO}/batch"
NORMALISED = (f"{_ZOO}/instance", f"{_ZOO}/layer", f"{_ZOO}/group")
FIXUP = f"{_ZOO}/fixup"
ONE_LAYER = f"{_ZOO}/last"

_WITH_EPS = re.compile(r"(.+)\[eps=([^\]]+)\]/(\d+)")


def seeds_of(network: str, count: int) -> list[str]:
    return [f"{network}/{seed}" for seed in range(count)]


def reference_with_eps(reference: str, eps: float) -> str:
    """The name of a network with another eps in its normalisation layers."""
    network, _, seed = reference.rpartition("/")
    return f"{network}[eps={eps}]/{seed}"


def missing_weights(model: Model) -> str | None:
    """The zoo name of the weights that a model needs and the zoo does not have; None if it has them."""
    reference, _ = _without_eps(model.reference)
    try:
        Model(reference).members()
    except ModelError:
        return reference.removeprefix("zoo:")
    return None


def load_eps_variants(models: tuple[Model, ...]) -> dict[str, Classifier]:
    """The networks whose name changes their eps, by name; the others are loaded by the evaluation itself."""
    variants = {}
    for model in models:
        reference, eps = _without_eps(model.reference)
        if eps is not None:
            variants[model.name] = _set_eps(load(reference), eps)
    return variants


def _without_eps(reference: str) -> tuple[str, float | None]:
    """The name of a network without an eps, and that eps."""
    match = _WITH_EPS.fullmatch(reference)
    return (f"{match[1]}/{match[3]}", float(match[2])) if match else (reference, None)


def _set_eps(classifier: Classifier, eps: float | None) -> Classifier:
    for module in classifier.modules():
        if eps is not None and isinstance(module, nn.InstanceNorm2d | nn.GroupNorm):
            module.eps = eps
    return classifier


@dataclass(frozen=True)
class TrainedNetworks:
    """Networks that `predbn train cifar10 --out FOLDER` has written, in place of those of the zoo with the same names.

    In results they have the names of the zoo, so that every experiment finds them; the run card has their own cards.
    """

    folder: Path

    def load(self, models: tuple[Model, ...]) -> dict[str, Classifier]:
        """Those of the models that the folder has, by name."""
        loaded = {}
        for model in models:
            pattern, eps = _without_eps(model.reference)
            for name, path in self._files().items():
                if fnmatchcase(name, pattern):
                    classifier = self._load(name, path)
                    loaded[name if eps is None else model.name] = _set_eps(classifier, eps)
        if not loaded:
            names = ", ".join(dict.fromkeys(model.reference.removeprefix("zoo:") for model in models))
            raise NotMeasured(f"{self.folder} has no {names}")
        return loaded

    def _files(self) -> dict[str, Path]:
        paths = sorted(self.folder.glob("*/*/*.safetensors"), key=lambda path: (path.parent, len(path.stem), path.stem))
        return {f"zoo:{path.relative_to(self.folder).with_suffix('').as_posix()}": path for path in paths}

    def _load(self, name: str, path: Path) -> Classifier:
        loaded = load(f"file:{path}#{path.parent.relative_to(self.folder).as_posix()}")
        card = read_json(path.with_suffix(".json"), error=PaperError, remedy="train the network again")
        return Classifier(loaded.network, replace(loaded.info, reference=name, card=card)).eval()
