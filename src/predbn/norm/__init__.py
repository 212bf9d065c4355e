"""The method: which batch norm layers a model has, where their statistics come from, adapt and restore.

Needs torch and `predbn.common`, nothing else.
"""

from predbn.common import AdaptationError

from . import robust
from .adapt import PreparedAdaptation, adapt, adapted, calibrate, restore
from .adaptation import VERSION, Adaptation, LayerAdaptation
from .auto import auto as auto_equations
from .auto.auto import Auto
from .auto.auto_stream import AutoStream
from .auto.calibration import MIN_CHANCE, Calibration, CalibrationAccumulator
from .auto.predictor import AutoPredictor, predictor
from .backend import Backend, Bounds, register
from .calibrate import evaluating
from .describe import Description, LayerDescription, describe
from .drift import Drift, DriftMeter
from .fold import fold
from .forward import Arguments, BatchForward, Forward, Wrapper, batches_of
from .layer import adapted_layers
from .layers import Layers, device_of, modules_of, named_layers, select_by_name, unwrapped
from .observation import Observation
from .recompute import recompute
from .segments import Bucket, RowOrder, Segments, StreamSegments
from .state import load_state_dict, state_dict
from .statistics import Moments, Statistics, distance, pool_central_moments
from .strategies import Batch, Ema, Frozen, Population, Prior, Strategy, Train, find_strategy, strategies
from .strategies.base import load_statistics, save_statistics
from .streams.api import remove_stream, reset, save_streams, stream, stream_bytes, streams
from .streams.blocks import Selection, current_selection, open_blocks
from .streams.registry import DEFAULT_STREAM, UnnamedStream
from .streams.state import LayerState, Packed, pack, stack
from .streams.store import DamagedStreamError, DirectoryStore, Owner, SavedStream, StreamStore
from .streams.stream import Pass, PassPart, Stream
from .tracing import is_exporting, is_native, is_tracing, needs_gradients

__all__ = [
    "DEFAULT_STREAM",
    "MIN_CHANCE",
    "VERSION",
    "Adaptation",
    "AdaptationError",
    "Arguments",
    "Auto",
    "AutoPredictor",
    "AutoStream",
    "Backend",
    "Batch",
    "BatchForward",
    "Bounds",
    "Bucket",
    "Calibration",
    "CalibrationAccumulator",
    "DamagedStreamError",
    "Description",
    "DirectoryStore",
    "Drift",
    "DriftMeter",
    "Ema",
    "Forward",
    "Frozen",
    "LayerAdaptation",
    "LayerDescription",
    "LayerState",
    "Layers",
    "Moments",
    "Observation",
    "Owner",
    "Packed",
    "Pass",
    "PassPart",
    "Population",
    "PreparedAdaptation",
    "Prior",
    "RowOrder",
    "SavedStream",
    "Segments",
    "Selection",
    "Statistics",
    "Strategy",
    "Stream",
    "StreamSegments",
    "StreamStore",
    "Train",
    "UnnamedStream",
    "Wrapper",
    "adapt",
    "adapted",
    "adapted_layers",
    "auto_equations",
    "batches_of",
    "calibrate",
    "current_selection",
    "describe",
    "device_of",
    "distance",
    "evaluating",
    "find_strategy",
    "fold",
    "is_exporting",
    "is_native",
    "is_tracing",
    "load_state_dict",
    "load_statistics",
    "modules_of",
    "named_layers",
    "needs_gradients",
    "open_blocks",
    "pack",
    "pool_central_moments",
    "predictor",
    "recompute",
    "register",
    "remove_stream",
    "reset",
    "restore",
    "robust",
    "save_statistics",
    "save_streams",
    "select_by_name",
    "stack",
    "state_dict",
    "strategies",
    "stream",
    "stream_bytes",
    "streams",
    "unwrapped",
]
