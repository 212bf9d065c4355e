"""The strategies: where a layer's statistics come from. One class per file; a new strategy needs nothing else.

`auto` and `auto_stream` are in `norm/auto/`.
"""

from .base import Strategy, find_strategy, strategies
from .batch import Batch
from .ema import Ema
from .frozen import Frozen
from .population import Population
from .prior import Prior
from .train import Train

__all__ = [
    "Batch",
    "Ema",
    "Frozen",
    "Population",
    "Prior",
    "Strategy",
    "Train",
    "find_strategy",
    "strategies",
]
