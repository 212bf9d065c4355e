"""The method: which batch norm layers a model has, where their statistics come from, adapt and restore.

Needs torch and `predbn.common`, nothing else.
"""

from predbn.common import AdaptationError

from .adapt import PreparedAdaptation, adapt, adapted, calibrate, restore
from .calibration import Calibration
from .collect import evaluating, input_of
from .describe import Description, LayerDescription, describe
from .drift import Drift, DriftMeter
from .fold import fold
from .layers import Layers, device_of, named_layers, unwrapped
from .observation import Observation
from .statistics import Moments, Statistics, pool_central_moments
from .strategies import (
    Auto,
    AutoStream,
    Batch,
    Ema,
    Frozen,
    Population,
    Prior,
    Strategy,
    Train,
    find_strategy,
    strategies,
)
from .stream_states import load_stream_state, stream_state
from .streams import load_state_dict, remove_stream, reset, state_dict, stream, streams

__all__ = [
    "AdaptationError",
    "Auto",
    "AutoStream",
    "Batch",
    "Calibration",
    "Description",
    "Drift",
    "DriftMeter",
    "Ema",
    "Frozen",
    "LayerDescription",
    "Layers",
    "Moments",
    "Observation",
    "Population",
    "PreparedAdaptation",
    "Prior",
    "Statistics",
    "Strategy",
    "Train",
    "adapt",
    "adapted",
    "calibrate",
    "describe",
    "device_of",
    "evaluating",
    "find_strategy",
    "fold",
    "input_of",
    "load_state_dict",
    "load_stream_state",
    "named_layers",
    "pool_central_moments",
    "remove_stream",
    "reset",
    "restore",
    "state_dict",
    "strategies",
    "stream",
    "stream_state",
    "streams",
    "unwrapped",
]
