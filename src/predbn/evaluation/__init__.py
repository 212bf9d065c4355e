"""A plan (models × methods × strategies × splits), its runner, its engines, its result store.

pandas and pyarrow, because results are a tidy Parquet data set that any tool reads.
"""

from .compare import compare
from .engines import Engine, InProcess
from .errors import EvaluationError
from .job import Job
from .plan import Model, Plan
from .plan_file import read_plan, write_plan
from .ray_engine import RayEngine
from .results import Results
from .run import evaluate
from .settings import Setting
from .splits import Split
from .units import Cell, Fit, FitUnit, Row, SplitUnit, Unit, UnitResult

__all__ = [
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
    "Unit",
    "UnitResult",
    "compare",
    "evaluate",
    "read_plan",
    "write_plan",
]
