"""What all other folders share.

Errors, atomic files with checksums, locks, threads, worker processes, random draws, lookup by name, the progress bar,
devices, the cache folder, provenance. Importing it loads only torch and numpy.
"""

from .checksums import CHECKSUM_FIELD, has_right_checksum, open_checked, read_checked, write_checksum
from .environment import cache_folder, git_commit, hardware_of, package_versions, parse_device
from .errors import (
    AdaptationError,
    DataError,
    DeviceError,
    DiagnosticError,
    EvaluationError,
    MethodError,
    MetricError,
    MissingPackageError,
    ModelError,
    NotMeasured,
    PaperError,
    PredbnError,
    ReportError,
    ServingError,
    ShiftError,
    TrainingError,
    first_line,
)
from .extras import needs_extra
from .files import (
    PARTIAL_SUFFIX,
    atomic_write,
    finish_partial,
    lock_folder,
    partial_path,
    sync_folder,
    write_array,
    write_array_in_parts,
    write_bytes,
    write_text,
)
from .json_files import read_json, write_json
from .names import did_you_mean, find_by_name, format_spec, look_up, short_spec
from .plugins import import_function, import_module, load_plugins
from .processes import end_with_parent
from .progress import Progress, ProgressWithNote, progress_bar, showing_progress
from .random import Draws, derive_seed
from .tensor_files import parse_tensors, read_tensors, write_tensors
from .threads import each_on_one_core, map_ahead, map_threads
from .toml_files import parse_toml
from .torch_files import read_torch_file, write_torch_file

__all__ = [
    "CHECKSUM_FIELD",
    "PARTIAL_SUFFIX",
    "AdaptationError",
    "DataError",
    "DeviceError",
    "DiagnosticError",
    "Draws",
    "EvaluationError",
    "MethodError",
    "MetricError",
    "MissingPackageError",
    "ModelError",
    "NotMeasured",
    "PaperError",
    "PredbnError",
    "Progress",
    "ProgressWithNote",
    "ReportError",
    "ServingError",
    "ShiftError",
    "TrainingError",
    "atomic_write",
    "cache_folder",
    "derive_seed",
    "did_you_mean",
    "each_on_one_core",
    "end_with_parent",
    "find_by_name",
    "finish_partial",
    "first_line",
    "format_spec",
    "git_commit",
    "hardware_of",
    "has_right_checksum",
    "import_function",
    "import_module",
    "load_plugins",
    "lock_folder",
    "look_up",
    "map_ahead",
    "map_threads",
    "needs_extra",
    "open_checked",
    "package_versions",
    "parse_device",
    "parse_tensors",
    "parse_toml",
    "partial_path",
    "progress_bar",
    "read_checked",
    "read_json",
    "read_tensors",
    "read_torch_file",
    "short_spec",
    "showing_progress",
    "sync_folder",
    "write_array",
    "write_array_in_parts",
    "write_bytes",
    "write_checksum",
    "write_json",
    "write_tensors",
    "write_text",
    "write_torch_file",
]
