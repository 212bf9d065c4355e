"""Evaluate models under shift: a plan (models × methods × strategies × splits), its run, its engines, its results.

The path of `evaluate`: `run` opens the folder and makes a `Job` from the `Plan`; the job says which units of work there
are; an engine has them computed by the `Worker` of a process, which streams a split from its `Source`, predicts it with
the `Predictor`s of its `ModelCache` and scores it; the `Store` keeps the rows; `Results` reads them.

pandas and pyarrow are used because results are tidy Parquet files that any tool can read.
"""

from predbn.common import EvaluationError, needs_extra

with needs_extra("eval"):
    import pandas as _pandas  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401

from .engines import Engine, InProcess
from .job import Job
from .plan import Model, Plan, plan_fields
from .plan_fields import PlanField
from .plan_file import read_plan
from .ray_engine import RayEngine, connect_to_ray
from .results import RESAMPLES as BOOTSTRAP_RESAMPLES
from .results import Results, compare, mce_by_image
from .run import evaluate, open_run
from .scoring import unpack_hits
from .setting import Setting
from .source import DATA as DATA_SPLIT
from .source import REFERENCE as REFERENCE_SPLIT
from .splits import Split
from .splits import positions as stream_positions
from .splits import resolve as resolve_splits
from .table_files import read_table, write_table
from .tables import RELIABILITY as RELIABILITY_SCHEMA
from .tables import RESULTS as RESULTS_SCHEMA
from .units import Unit, UnitResult

__all__ = [
    "BOOTSTRAP_RESAMPLES",
    "DATA_SPLIT",
    "REFERENCE_SPLIT",
    "RELIABILITY_SCHEMA",
    "RESULTS_SCHEMA",
    "Engine",
    "EvaluationError",
    "InProcess",
    "Job",
    "Model",
    "Plan",
    "PlanField",
    "RayEngine",
    "Results",
    "Setting",
    "Split",
    "Unit",
    "UnitResult",
    "compare",
    "connect_to_ray",
    "evaluate",
    "mce_by_image",
    "open_run",
    "plan_fields",
    "read_plan",
    "read_table",
    "resolve_splits",
    "stream_positions",
    "unpack_hits",
    "write_table",
]
