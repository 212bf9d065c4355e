"""Models of timm, with the preprocessing that timm states for their weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from predbn.common import ModelError

from .preprocessing import Preprocessing

__all__ = ["from_timm", "timm_preprocessing"]


def from_timm(name: str, *, pretrained: bool = True) -> tuple[nn.Module, int, Preprocessing]:
    """The network, its number of classes and its preprocessing."""
    try:
        import timm
        from timm.data import resolve_model_data_config  # type: ignore[attr-defined]
    except ImportError:
        raise ModelError(f"timm:{name} needs timm: run `pip install predbn[timm]`.") from None
    except Exception as error:
        raise ModelError(
            f"timm:{name} needs timm, which fails to import here ({error}): install the torchvision that belongs to "
            "your torch."
        ) from None
    try:
        network = timm.create_model(name, pretrained=pretrained)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"timm:{name} cannot be had ({reason}): look for the name in timm.list_models(), or for the connection."
        ) from None
    classes: Any = network.num_classes
    return network, classes, timm_preprocessing(resolve_model_data_config(network))  # type: ignore[no-untyped-call]


def timm_preprocessing(config: dict[str, Any]) -> Preprocessing:
    """timm's configuration in our words: mean and std from 0 to 255, the crop as the size to resize to."""
    _, height, width = config["input_size"]
    mean, std = ([255 * value for value in config[key]] for key in ("mean", "std"))
    return Preprocessing(
        size=(height, width),
        mean=(mean[0], mean[1], mean[2]),
        std=(std[0], std[1], std[2]),
        resize=int(min(height, width) / config["crop_pct"]),
        interpolation=config["interpolation"],
    )
