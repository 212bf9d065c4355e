"""What all other folders share.

Errors, atomic files and locks, threads, random draws, lookup by name, the progress bar, devices, the cache folder,
provenance. Importing it loads only torch and numpy.
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
from .progress import Progress, ProgressWithNote, progress_bar
from .random import Draws, derive_seed
from .threads import each_on_one_core, map_ahead, map_threads

__all__ = [
    "PART",
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
    "commit",
    "derive_seed",
    "did_you_mean",
    "each_on_one_core",
    "find_by_name",
    "finish",
    "finish_partial",
    "format_spec",
    "git_commit",
    "hardware_of",
    "lock_folder",
    "map_ahead",
    "map_threads",
    "package_versions",
    "parse_device",
    "part_of",
    "partial_path",
    "progress_bar",
    "subseed",
    "versions",
    "write_array",
    "write_bytes",
    "write_text",
    "written",
]

PART = PARTIAL_SUFFIX  # until its users are changed
commit = git_commit  # until its users are changed
finish = finish_partial  # until its users are changed
part_of = partial_path  # until its users are changed
subseed = derive_seed  # until its users are changed
versions = package_versions  # until its users are changed
written = format_spec  # until its users are changed
