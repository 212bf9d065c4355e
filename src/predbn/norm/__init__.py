"""The method: which batch norm layers there are, where their statistics come from, adapt and restore.

Depends on torch alone.
"""

from predbn.common import AdaptationError

from .adapt import adapt, adapted, restore
from .calibrate import calibrate
from .calibration import Calibration
from .describe import Description, LayerDescription, describe
from .fold import fold
from .kinds import device_of, named_layers, no_batch_norm, unwrapped
from .layer import Adaptation, Slot, fit, slot_of
from .observation import Observation
from .select import Layers
from .select import select as select_layers
from .statistics import Moments, Statistics
from .strategies import Auto, AutoStream, Batch, Ema, Frozen, Population, Prior, Strategy, Train
from .strategies import find as find_strategy
from .strategies import names as strategies
from .streams import load_state_dict, reset, state_dict, stream

__all__ = [
    "Adaptation",
    "AdaptationError",
    "Auto",
    "AutoStream",
    "Batch",
    "Calibration",
    "Description",
    "Ema",
    "Frozen",
    "LayerDescription",
    "Layers",
    "Moments",
    "Observation",
    "Population",
    "Prior",
    "Slot",
    "Statistics",
    "Strategy",
    "Train",
    "adapt",
    "adapted",
    "calibrate",
    "describe",
    "device_of",
    "find_strategy",
    "fit",
    "fold",
    "load_state_dict",
    "named_layers",
    "no_batch_norm",
    "reset",
    "restore",
    "select_layers",
    "slot_of",
    "state_dict",
    "strategies",
    "stream",
    "unwrapped",
]
