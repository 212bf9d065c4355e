"""Shifts of data: the 19 corruptions, mixtures of them, stream orders, attacks, and shifts for tables.

OpenCV does what it does exactly like the reference implementations and fast (short filters, Canny, JPEG); everything
else is batched in torch and runs on a CPU or a GPU.
"""

from predbn.common import ShiftError, needs_extra

with needs_extra("eval"):
    import cv2 as _cv2  # noqa: F401
    import scipy as _scipy  # noqa: F401

from . import blur, digital, elastic, motion_blur, noise, orders, spatter, weather  # noqa: F401
from .attack import ATTACKS, Attack, target_class
from .corrupt import corrupt
from .mixture import draw_kinds, mix
from .registry import find_corruption, get_corruption, names, names_for, register
from .tabular import randomise_features, randomise_tokens

__all__ = [
    "ATTACKS",
    "Attack",
    "ShiftError",
    "corrupt",
    "draw_kinds",
    "find_corruption",
    "get_corruption",
    "mix",
    "names",
    "names_for",
    "orders",
    "randomise_features",
    "randomise_tokens",
    "register",
    "target_class",
]
