"""What all other folders share.

Errors, atomic files and locks, threads, worker processes, random draws, lookup by name, the progress bar, devices, the
cache folder, provenance. Importing it loads only torch and numpy.
"""

from .environment import cache_folder, git_commit, hardware_of, package_versions, parse_device
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
from .files import (
    PARTIAL_SUFFIX,
    atomic_write,
    finish_partial,
    lock_folder,
    partial_path,
    write_array,
    write_bytes,
    write_text,
)
from .names import class_by_name, did_you_mean, find_by_name, format_spec
from .processes import end_with_parent, process_pool
from .progress import Progress, ProgressWithNote, progress_bar
from .random import Draws, derive_seed
from .threads import each_on_one_core, map_ahead, map_threads

__all__ = [
    "PARTIAL_SUFFIX",
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
    "derive_seed",
    "did_you_mean",
    "each_on_one_core",
    "end_with_parent",
    "find_by_name",
    "finish_partial",
    "format_spec",
    "git_commit",
    "hardware_of",
    "lock_folder",
    "map_ahead",
    "map_threads",
    "package_versions",
    "parse_device",
    "partial_path",
    "process_pool",
    "progress_bar",
    "write_array",
    "write_bytes",
    "write_text",
]
