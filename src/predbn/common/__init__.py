"""What every other folder needs and none of them owns.

Errors, atomic files and locks, threads, random draws, lookup by name, the progress bar, devices, the cache folder,
provenance. Importing it loads torch and numpy and nothing else.
"""

from .cache import cache_folder
from .devices import parse_device
from .errors import (
    AdaptationError,
    DataError,
    DeviceError,
    DiagnosticError,
    EvaluationError,
    MethodError,
    MetricError,
    ModelError,
    NotMeasured,
    PaperError,
    PredbnError,
    ReportError,
    ShiftError,
    TrainingError,
)
from .files import PART, atomic_write, finish, lock_folder, part_of, write_array, write_bytes, write_text
from .names import class_by_name, did_you_mean, find_by_name, written
from .progress import Progress, ProgressWithNote, progress_bar
from .provenance import commit, hardware_of, versions
from .random import Draws, subseed
from .threads import each_on_one_core, map_ahead, map_threads, threads_for

__all__ = [
    "PART",
    "AdaptationError",
    "DataError",
    "DeviceError",
    "DiagnosticError",
    "Draws",
    "EvaluationError",
    "MethodError",
    "MetricError",
    "ModelError",
    "NotMeasured",
    "PaperError",
    "PredbnError",
    "Progress",
    "ProgressWithNote",
    "ReportError",
    "ShiftError",
    "TrainingError",
    "atomic_write",
    "cache_folder",
    "class_by_name",
    "commit",
    "did_you_mean",
    "each_on_one_core",
    "find_by_name",
    "finish",
    "hardware_of",
    "lock_folder",
    "map_ahead",
    "map_threads",
    "parse_device",
    "part_of",
    "progress_bar",
    "subseed",
    "threads_for",
    "versions",
    "write_array",
    "write_bytes",
    "write_text",
    "written",
]
