"""The method: which batch norm layers there are, where their statistics come from, adapt and restore.

Depends on torch alone.
"""

from .adapt import adapt, adapted, restore
from .calibrate import calibrate
from .calibration import Calibration
from .describe import Description, LayerDescription, describe
from .errors import AdaptationError
from .fold import fold
from .observation import Observation
from .statistics import Moments, Statistics
from .strategies import Auto, AutoStream, Batch, Ema, Frozen, Population, Prior, Strategy, Train
from .strategies import names as strategies
from .streams import load_state_dict, reset, state_dict, stream

__all__ = [
    "AdaptationError",
    "Auto",
    "AutoStream",
    "Batch",
    "Calibration",
    "Description",
    "Ema",
    "Frozen",
    "LayerDescription",
    "Moments",
    "Observation",
    "Population",
    "Prior",
    "Statistics",
    "Strategy",
    "Train",
    "adapt",
    "adapted",
    "calibrate",
    "describe",
    "fold",
    "load_state_dict",
    "reset",
    "restore",
    "state_dict",
    "strategies",
    "stream",
]
