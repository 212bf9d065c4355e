"""The table of corruptions: their names, families and constants.

A corruption is one function `f(x, c, draws) -> x'`: x is a batch of images, c the constant of the severity (a number
or a tuple), draws the random numbers of these images. The decorator `register` enters it in the table and returns it
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from predbn.common import Draws, ShiftError, did_you_mean

ConstantSet = Literal["cifar", "imagenet"]
InputFormat = Literal["float", "uint8", "nhwc"]
Function = Callable[[Tensor, Any, Draws], Tensor]

STANDARD = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")


@dataclass(frozen=True)
class Corruption:
    """One corruption; `register` explains the fields."""

    name: str
    function: Function
    family: str
    set: str
    cifar: tuple[Any, ...]
    imagenet: tuple[Any, ...]
    works_on: InputFormat
    min_side: int
    chunk: int

    def constant(self, severity: int, constants: ConstantSet) -> Any:
        """The constant of a severity from 1 to 5 in one of the two sets."""
        return (self.cifar if constants == "cifar" else self.imagenet)[severity - 1]


_CORRUPTIONS: dict[str, Corruption] = {}


def register(
    name: str,
    *,
    family: str,
    set: Literal["standard", "extra"],
    cifar: tuple[Any, ...],
    imagenet: tuple[Any, ...],
    works_on: InputFormat = "float",
    min_side: int = 1,
    chunk: int = 1 << 20,
) -> Callable[[Function], Function]:
    """Enter a corruption in the table.

    `cifar` and `imagenet` are the constants of the five severities in CIFAR-10-C and ImageNet-C.

    With works_on="float" the function takes and returns float32 NCHW on the scale [0, 1], and `corrupt` clips and
    casts to uint8. With "uint8" it takes and returns uint8 NCHW, with "nhwc" uint8 NHWC, the layout of OpenCV.

    `min_side` is the smallest image side for which the corruption is defined; `corrupt` refuses smaller images.
    `chunk` is how many values (pixels times channels) a CPU thread works on at once: few enough for its cache, and
    enough that threads rarely wait for each other between two operations.
    """

    def decorator(function: Function) -> Function:
        _CORRUPTIONS[name] = Corruption(name, function, family, set, cifar, imagenet, works_on, min_side, chunk)
        return function

    return decorator


def names(which: Literal["standard", "extra", "all"] = "standard") -> tuple[str, ...]:
    """The corruptions of a set, in the order of the published benchmark."""
    sets = {"standard": STANDARD, "extra": EXTRA, "all": STANDARD + EXTRA}
    if which not in sets:
        raise ShiftError(f"There is no set of corruptions called {which!r}: use standard, extra or all.")
    return sets[which]


def get_corruption(name: str) -> Corruption:
    """The corruption of that name. `predbn.shifts` must have been imported, which fills the table."""
    return _CORRUPTIONS[name]


def find_corruption(name: str) -> Corruption:
    """The corruption of that name, or an error that suggests the most similar name."""
    choices = names("all")
    if name in choices:
        return _CORRUPTIONS[name]
    normalised = str(name).lower().replace("-", "_").replace(" ", "_")
    hint = did_you_mean(normalised, choices, cutoff=0.5) or f": choose one of {', '.join(choices)}"
    raise ShiftError(f"There is no corruption called {name!r}{hint}.")
