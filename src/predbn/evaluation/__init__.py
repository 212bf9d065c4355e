"""A plan (models × methods × strategies × splits), its runner, its engines, its result store.

pandas and pyarrow, because results are a tidy Parquet data set that any tool reads.
"""

from predbn.common import EvaluationError

from .card import check_same as check_same_context
from .card import joined as join_contexts
from .card import make_card
from .card import to_json as card_json
from .compare import compare
from .engines import Engine, InProcess
from .hits import unpack as unpack_hits
from .imagenet_data import IMAGENET_SETS, framing_of
from .job import Job
from .mce import RESAMPLES as BOOTSTRAP_RESAMPLES
from .mce import mce_by_image
from .plan import Model, Plan
from .plan_file import read_plan, write_plan
from .ray_engine import RayEngine
from .results import Results
from .run import Progress as UnitProgress
from .run import evaluate
from .settings import Setting
from .source import open_images
from .splits import Split
from .splits import positions as stream_positions
from .splits import resolve as resolve_splits
from .store import Store
from .tables import RELIABILITY as RELIABILITY_SCHEMA
from .tables import RESULTS as RESULTS_SCHEMA
from .units import Cell, Fit, FitUnit, Row, SplitUnit, Unit, UnitResult

__all__ = [
    "BOOTSTRAP_RESAMPLES",
    "IMAGENET_SETS",
    "RELIABILITY_SCHEMA",
    "RESULTS_SCHEMA",
    "Cell",
    "Engine",
    "EvaluationError",
    "Fit",
    "FitUnit",
    "InProcess",
    "Job",
    "Model",
    "Plan",
    "RayEngine",
    "Results",
    "Row",
    "Setting",
    "Split",
    "SplitUnit",
    "Store",
    "Unit",
    "UnitProgress",
    "UnitResult",
    "card_json",
    "check_same_context",
    "compare",
    "evaluate",
    "framing_of",
    "join_contexts",
    "make_card",
    "mce_by_image",
    "open_images",
    "read_plan",
    "resolve_splits",
    "stream_positions",
    "unpack_hits",
    "write_plan",
]
