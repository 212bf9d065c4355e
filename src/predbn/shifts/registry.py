"""The table of corruptions: their names, families and constants.

A corruption is one function `f(x, c, draws) -> x'`: x is a batch of images, c the constant of the severity (a number
or a tuple), draws the random numbers of these images. The decorator `register` enters it in the table and returns it
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from predbn.common import Draws, ShiftError, did_you_mean, load_plugins

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
    cifar: tuple[Any, ...]
    imagenet: tuple[Any, ...]
    works_on: InputFormat
    min_side: int
    chunk: int
    mixes_channels: bool

    def check_shape(self, channels: int, height: int, width: int) -> None:
        """Raise an error if the corruption is not defined for such images."""
        if min(height, width) < self.min_side:
            size, minimum = f"{height}×{width}", f"{self.min_side}×{self.min_side}"
            raise ShiftError(f"images are {size} pixels, but {self.name} needs at least {minimum}.")
        if self.name == "saturate" and channels == 1:
            raise ShiftError("saturate is not defined for grey images, which have no saturation: leave it out.")
        if self.mixes_channels and channels not in (1, 3):
            raise ShiftError(
                f"{self.name} is defined for images with 1 or 3 channels, but these have {channels}: leave it out."
            )

    def constant(self, severity: int, constants: ConstantSet) -> Any:
        """The constant of a severity from 1 to 5 in one of the two sets."""
        return (self.cifar if constants == "cifar" else self.imagenet)[severity - 1]


_CORRUPTIONS: dict[str, Corruption] = {}


def register(
    name: str,
    *,
    family: str,
    cifar: tuple[Any, ...],
    imagenet: tuple[Any, ...] | None = None,
    works_on: InputFormat = "float",
    min_side: int = 1,
    chunk: int = 1 << 20,
    mixes_channels: bool = False,
) -> Callable[[Function], Function]:
    """Enter a corruption in the table.

    `name` is what it is called everywhere, and `family` the group it is shown in, such as "blur" or "noise".

    `cifar` and `imagenet` are the constants of the five severities in CIFAR-10-C and ImageNet-C, for small and for
    large images; without the latter, those of `cifar` are used for both.

    With works_on="float" the function takes and returns float32 NCHW on the scale [0, 1], and `corrupt` clips and
    casts to uint8. With "uint8" it takes and returns uint8 NCHW, with "nhwc" uint8 NHWC, the layout of OpenCV.

    `min_side` is the smallest image side for which the corruption is defined; `corrupt` refuses smaller images.
    `chunk` is how many values (pixels times channels) a CPU thread works on at once: few enough for its cache, and
    enough that threads rarely wait for each other between two operations. A corruption that `mixes_channels` is defined
    for RGB only; the others work on each channel, of which there may be any number.
    """
    large = cifar if imagenet is None else imagenet
    if len(cifar) != 5 or len(large) != 5:
        raise ShiftError(f"the corruption {name!r} needs constants for five severities: give tuples of five.")

    def decorator(function: Function) -> Function:
        if name in _CORRUPTIONS and function.__module__ != _CORRUPTIONS[name].function.__module__:
            raise ShiftError(f"there is a corruption {name!r} already: choose another name.")
        _CORRUPTIONS[name] = Corruption(name, function, family, cifar, large, works_on, min_side, chunk, mixes_channels)
        return function

    return decorator


def names(which: Literal["standard", "extra", "all", "own"] = "standard") -> tuple[str, ...]:
    """The corruptions of a set, in the order of the published benchmark.

    With `which` "standard" these are the 15 that the benchmark is scored on, and with "extra" the 4 others; "all" are
    both; "own" are those that others have registered, in the order of registration.
    """
    load_plugins()
    published = STANDARD + EXTRA
    own = tuple(name for name in _CORRUPTIONS if name not in published)
    sets = {"standard": STANDARD, "extra": EXTRA, "all": published, "own": own}
    if which not in sets:
        raise ShiftError(f"There is no set of corruptions called {which!r}: use standard, extra, all or own.")
    return sets[which]


def names_for(channels: int, height: int, width: int) -> tuple[str, ...]:
    """Those of "all" that are defined for such images."""
    defined = []
    for name in names("all"):
        with suppress(ShiftError):
            _CORRUPTIONS[name].check_shape(channels, height, width)
            defined.append(name)
    return tuple(defined)


def get_corruption(name: str) -> Corruption:
    """The corruption of that name. `predbn.shifts` must have been imported, which fills the table."""
    return _CORRUPTIONS[name]


def find_corruption(name: str) -> Corruption:
    """The corruption of that name, or an error that suggests the most similar name."""
    choices = names("all") + names("own")
    if name in choices:
        return _CORRUPTIONS[name]
    normalised = str(name).lower().replace("-", "_").replace(" ", "_")
    hint = did_you_mean(normalised, choices, cutoff=0.5) or f": choose one of {', '.join(choices)}"
    raise ShiftError(f"There is no corruption called {name!r}{hint}.")
