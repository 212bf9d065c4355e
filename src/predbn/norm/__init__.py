"""The method: which batch norm layers a model has, where their statistics come from, adapt and restore.

Needs torch and `predbn.common`, nothing else.
"""

from predbn.common import AdaptationError

from . import constants
from .activation import normalise_and_activate
from .adapt import PreparedAdaptation, adapt, adapted, calibrate, restore
from .calibration import Calibration, CalibrationAccumulator
from .capture import CapturedModel, capture
from .collect import evaluating
from .compile import compile
from .describe import Description, LayerDescription, describe
from .drift import Drift, DriftMeter
from .fold import fold
from .forward import Arguments, BatchForward, Forward, batches_of
from .layers import Layers, device_of, named_layers, select_by_name, unwrapped
from .observation import Observation
from .recompute import recompute
from .saved_state import load_state_dict, state_dict
from .statistics import Moments, Statistics, distance, pool_central_moments
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
from .stream_registry import DEFAULT_STREAM, UnnamedStream
from .stream_store import DirectoryStore, SavedStream, StreamStore
from .stream_table import LayerState
from .streams import remove_stream, reset, save_streams, stream, stream_bytes, streams

__all__ = [
    "DEFAULT_STREAM",
    "AdaptationError",
    "Arguments",
    "Auto",
    "AutoStream",
    "Batch",
    "BatchForward",
    "Calibration",
    "CalibrationAccumulator",
    "CapturedModel",
    "Description",
    "DirectoryStore",
    "Drift",
    "DriftMeter",
    "Ema",
    "Forward",
    "Frozen",
    "LayerDescription",
    "LayerState",
    "Layers",
    "Moments",
    "Observation",
    "Population",
    "PreparedAdaptation",
    "Prior",
    "SavedStream",
    "Statistics",
    "Strategy",
    "StreamStore",
    "Train",
    "UnnamedStream",
    "adapt",
    "adapted",
    "batches_of",
    "calibrate",
    "capture",
    "compile",
    "constants",
    "describe",
    "device_of",
    "distance",
    "evaluating",
    "find_strategy",
    "fold",
    "load_state_dict",
    "named_layers",
    "normalise_and_activate",
    "pool_central_moments",
    "recompute",
    "remove_stream",
    "reset",
    "restore",
    "save_streams",
    "select_by_name",
    "state_dict",
    "strategies",
    "stream",
    "stream_bytes",
    "streams",
    "unwrapped",
]
