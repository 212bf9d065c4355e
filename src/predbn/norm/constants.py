"""The numbers in the equations of `auto` and of robust moments, for those who write them in another language.

Each is explained where it is defined.
"""

from .calibration import MIN_CHANCE
from .robust import GAUSSIAN, NARROW, QUANTILES, TINY, WIDER_FOR_FEW
from .strategies.auto import DEFAULT_CHANCE, LIMITS, NETWORK_FACTOR, STORED_SIZE

__all__ = [
    "DEFAULT_CHANCE",
    "GAUSSIAN",
    "LIMITS",
    "MIN_CHANCE",
    "NARROW",
    "NETWORK_FACTOR",
    "QUANTILES",
    "STORED_SIZE",
    "TINY",
    "WIDER_FOR_FEW",
]
