"""predbn: prediction-time batch normalisation for any PyTorch model.

``predbn.adapt(model)`` makes every batch norm layer use the statistics of the batch being predicted;
``predbn.restore(model)`` gives back the original model.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from .common import PredbnError
    from .gpu import capture
    from .norm import (
        AdaptationError,
        Auto,
        AutoPredictor,
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
        recompute,
        remove_stream,
        reset,
        restore,
        save_streams,
        state_dict,
        strategies,
        stream,
        stream_bytes,
        streams,
    )
    from .recommendation import evaluate_shift
    from .serving.serve import serve

__all__ = [
    "AdaptationError",
    "Auto",
    "AutoPredictor",
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
    "capture",
    "describe",
    "evaluate_shift",
    "fold",
    "load_state_dict",
    "recompute",
    "remove_stream",
    "reset",
    "restore",
    "save_streams",
    "serve",
    "state_dict",
    "strategies",
    "stream",
    "stream_bytes",
    "streams",
]

_FOLDERS = {"PredbnError": "common", "capture": "gpu", "evaluate_shift": "recommendation", "serve": "serving"}
"""Where the names are that are not in `norm`."""

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> _Any:
        """Import torch and the method when they are first used, and look up the version.

        The command line then starts in a moment, and can answer Ctrl-C while torch is being imported.
        """
        if name == "__version__":
            metadata = _import_module("importlib.metadata")
            try:
                return metadata.version("predbn")
            except metadata.PackageNotFoundError:
                return "unknown"
        if name in ("common", "keras", "norm", "onnx"):
            return _import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        folder = _import_module(f"{__name__}.{_FOLDERS.get(name, 'norm')}")
        globals()[name] = getattr(folder, name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
