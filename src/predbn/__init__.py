"""predbn: prediction-time batch normalisation for any PyTorch model.

``predbn.adapt(model)`` makes every batch norm layer use the statistics of the batch being predicted;
``predbn.restore(model)`` gives back the original model.
"""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

from .common import PredbnError
from .norm import (
    AdaptationError,
    Auto,
    AutoStream,
    Batch,
    Calibration,
    Description,
    Ema,
    Frozen,
    LayerDescription,
    Moments,
    Observation,
    Population,
    Prior,
    Statistics,
    Strategy,
    Train,
    adapt,
    adapted,
    calibrate,
    describe,
    fold,
    load_state_dict,
    remove_stream,
    reset,
    restore,
    state_dict,
    strategies,
    stream,
)

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
    "PredbnError",
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
    "remove_stream",
    "reset",
    "restore",
    "state_dict",
    "strategies",
    "stream",
]

try:
    __version__ = _version("predbn")
except PackageNotFoundError:
    __version__ = "unknown"
