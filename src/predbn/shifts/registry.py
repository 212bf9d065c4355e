"""The table of corruptions: what each is called, where it belongs, what its constants are.

A corruption is one function `f(x, c, draws) -> x'`: x is a batch of images, c the constant of the severity
(a number or a tuple), draws the random numbers of these images. It is entered here by a decorator, which
leaves the function as it was, so that it can be read and called by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from predbn.common import Draws, ShiftError

__all__ = ["EXTRA", "STANDARD", "ConstantSet", "Corruption", "get", "names", "register"]

ConstantSet = Literal["cifar", "imagenet"]
WorksOn = Literal["float", "uint8", "nhwc"]
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
    """One entry of the table."""

    name: str
    function: Function
    family: str
    set: str
    cifar: tuple[Any, ...]
    imagenet: tuple[Any, ...]
    works_on: WorksOn
    smallest: int
    chunk: int

    def constant(self, severity: int, constants: ConstantSet) -> Any:
        """The constant of a severity from 1 to 5 in one of the two sets."""
        return (self.cifar if constants == "cifar" else self.imagenet)[severity - 1]


_TABLE: dict[str, Corruption] = {}


def register(
    name: str,
    *,
    family: str,
    set: Literal["standard", "extra"],
    cifar: tuple[Any, ...],
    imagenet: tuple[Any, ...],
    works_on: WorksOn = "float",
    smallest: int = 1,
    chunk: int = 1 << 20,
) -> Callable[[Function], Function]:
    """Enter a corruption in the table.

    `smallest` is the smallest image side on which the corruption means anything; below it `corrupt` refuses.
    A function with works_on="float" gets and gives float32 NCHW on the scale [0, 1]: clipping and the cast
    to uint8 are done by `corrupt`. With works_on="uint8" it gets and gives uint8 NCHW, with "nhwc" uint8
    NHWC, as libraries for single pictures have it. `chunk` is how many
    values (pixels times channels) a CPU thread works on at once: few enough for its cache, enough that the
    threads seldom wait for each other between two operations.
    """

    def enter(function: Function) -> Function:
        _TABLE[name] = Corruption(name, function, family, set, cifar, imagenet, works_on, smallest, chunk)
        return function

    return enter


def names(which: Literal["standard", "extra", "all"] = "standard") -> tuple[str, ...]:
    """The corruptions of a set, in the order of the published benchmark."""
    sets = {"standard": STANDARD, "extra": EXTRA, "all": STANDARD + EXTRA}
    if which not in sets:
        raise ShiftError(f"There is no set of corruptions called {which!r}: use standard, extra or all.")
    return sets[which]


def get(name: str) -> Corruption:
    """The entry of a corruption; `predbn.shifts` must have been imported, which fills the table."""
    return _TABLE[name]
