"""A model by one word.

| reference | what it is |
|---|---|
| `zoo:resnet20-cifar10/batch/3` | a network that comes with the package; `*` stands for any in `expand` |
| `timm:resnet50.tv_in1k` | a network of timm with its pretrained weights |
| `lite:efficientnet_lite0` | EfficientNet-Lite 0, 1 or 2 with its pretrained weights |
| `file:weights.safetensors#resnet50-v1` | weights of yours in an architecture of ours; `*` as above |
| `file:0.safetensors#criteo-mlp` | what `predbn train criteo` wrote: a model of rows, for `open_model` |
| `package.module:function` | what your function returns: a Classifier, or a network beside `preprocessing` |
"""

from __future__ import annotations

import glob
import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from predbn.common import ModelError

from . import architectures, zoo
from .classifier import Classifier, Description
from .criteo import ClickModel, load_criteo
from .lite import from_lite
from .outside import from_timm
from .preprocessing import Preprocessing
from .weights import load_into, read

__all__ = ["AnyModel", "expand", "load", "open_model"]

CLICKS = "criteo-mlp"
AnyModel = Classifier | ClickModel
"""A model of pictures, or of rows of a table."""


def load(
    reference: str,
    *,
    weights: str | Path | None = None,
    preprocessing: Preprocessing | None = None,
    device: torch.device | str | None = None,
) -> Classifier:
    """The model that a reference names, in evaluation mode: uint8 pictures in, logits out.

    `weights` (a state dict on the disk) is for functions of your own; `preprocessing` for them and, where it should
    differ from what timm states, for timm's models. A function that returns a Classifier brings its own.
    """
    kind, _, name = reference.partition(":")
    if not kind or not name:
        raise ModelError(
            f"{reference!r} names no model: write zoo:NAME, timm:NAME, lite:NAME, file:PATH#ARCHITECTURE "
            "or package.module:function."
        )
    if (weights and kind in ("zoo", "timm", "file")) or (preprocessing and kind in ("zoo", "file")):
        given = "weights" if weights else "preprocessing"
        raise ModelError(f"{reference} has its {given}: {given}= is for package.module:function.")
    if kind == "zoo":
        classifier = _zoo(name)
    elif kind in ("timm", "lite"):
        network, classes, stated = from_timm(name) if kind == "timm" else from_lite(name)
        classifier = Classifier(network, Description(reference, classes, preprocessing or stated))
    elif kind == "file":
        classifier = _file(reference, name)
    else:
        classifier = _own(reference, kind, name, weights, preprocessing)
    return classifier.eval().to(device)


def open_model(
    reference: str,
    *,
    weights: str | Path | None = None,
    preprocessing: Preprocessing | None = None,
    device: torch.device | str | None = None,
) -> AnyModel:
    """The model that a reference names, whether it is one of pictures or one of rows."""
    if not (reference.startswith("file:") and reference.endswith(f"#{CLICKS}")):
        return load(reference, weights=weights, preprocessing=preprocessing, device=device)
    if weights or preprocessing:
        raise ModelError(f"{reference} has its weights and its preprocessing: leave out yours.")
    return load_criteo(reference.removeprefix("file:").removesuffix(f"#{CLICKS}"), device=device)


def expand(reference: str) -> list[str]:
    """The references that a pattern stands for: all that fit in the zoo or on the disk, anything else itself."""
    if reference.startswith("zoo:"):
        return [f"zoo:{name}" for name in zoo.matching(reference.removeprefix("zoo:"))]
    if reference.startswith("file:") and any(sign in reference for sign in "*?["):
        pattern, separator, architecture = reference.removeprefix("file:").partition("#")
        if os.path.exists(pattern):
            return [reference]
        found = [f"file:{path}{separator}{architecture}" for path in sorted(glob.glob(pattern))]
        if not found:
            raise ModelError(f"No file fits {pattern}: name .safetensors or .pt files with weights.")
        return found
    return [reference]


def _zoo(name: str) -> Classifier:
    state = zoo.weights(name)
    entry = architectures.find(name.rpartition("/")[0])
    network = entry.build()
    load_into(network, state, f"zoo:{name}")
    return Classifier(network, Description(f"zoo:{name}", entry.classes, entry.preprocessing, zoo.card(name)))


def _file(reference: str, name: str) -> Classifier:
    path, separator, architecture = name.rpartition("#")
    if not separator:
        choices = ", ".join(architectures.ARCHITECTURES)
        raise ModelError(f"{reference!r} does not say what the weights are of: add #ARCHITECTURE, one of {choices}.")
    if architecture == CLICKS:
        raise ModelError(f"{reference} is a model of rows, but pictures are asked for: load it with load_criteo.")
    entry = architectures.find(architecture)
    network = entry.build()
    state, card = read(path)
    load_into(network, _our_names(state), path)
    return Classifier(network, Description(reference, entry.classes, entry.preprocessing, card))


def _our_names(state: dict[str, Any]) -> dict[str, Any]:
    """torchvision calls a normalisation bn1 where this ResNet, which has a choice of them, says norm1."""
    return {re.sub(r"(^|\.)bn(?=\d)", r"\1norm", name): tensor for name, tensor in state.items()}


def _own(
    reference: str, module: str, function: str, weights: str | Path | None, preprocessing: Preprocessing | None
) -> Classifier:
    built = _function(reference, module, function)()
    if not isinstance(built, nn.Module):
        raise ModelError(f"{reference} gave {type(built).__name__}, but it must return a torch.nn.Module.")
    network = built.network if isinstance(built, Classifier) else built
    if weights is not None:
        load_into(network, read(weights)[0], str(weights))
    if isinstance(built, Classifier) and preprocessing is None:
        return built
    stated = preprocessing or getattr(built, "preprocessing", None)
    if not isinstance(stated, Preprocessing):
        raise ModelError(
            f"{reference} does not say how its pictures are prepared: return a predbn.models.Classifier, "
            "give the network an attribute `preprocessing`, or pass preprocessing=."
        )
    return Classifier(network, Description(reference, _classes(reference, network, stated), stated))


def _function(reference: str, module: str, function: str) -> Callable[[], Any]:
    """What `module:function` names, looked for in the current folder too, as `python -m` does."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except (ImportError, TypeError) as error:
        raise ModelError(
            f"{reference}: {module} cannot be imported ({error}); it is looked for in the current folder too."
        ) from None
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ModelError(f"{reference}: {module} has no function {function!r}.")
    return found  # type: ignore[no-any-return]


@torch.no_grad()
def _classes(reference: str, network: nn.Module, preprocessing: Preprocessing) -> int:
    """How many logits the network gives."""
    first = next(network.parameters(), torch.zeros(()))
    picture = torch.zeros(2, 3, *preprocessing.size, device=first.device, dtype=first.dtype)
    was_training = network.training
    try:
        logits = network.eval()(picture)
    finally:
        network.train(was_training)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise ModelError(f"{reference} must give logits [N, classes] for pictures [N, 3, height, width].")
    return int(logits.shape[1])
