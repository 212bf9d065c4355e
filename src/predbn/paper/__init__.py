"""The paper: one module a figure or table, with its plan, its drawing and its claim as a check on results.

`predbn.paper.experiments` has the modules; a few plans serve all of them, and `Runs` reads their results.
"""

from .auto_tables import auto_tables, fill_page
from .claims import Claim, Finding, Measurement, Verdict
from .document import document, write_document
from .errors import NotMeasured, PaperError
from .experiment import Experiment
from .figures import save_figures
from .headline import headline_table
from .plans import PLANS
from .registry import EXPERIMENTS, choose
from .run import run_plans
from .runs import Runs
from .series import Series, paired
from .verify import verify

__all__ = [
    "EXPERIMENTS",
    "PLANS",
    "Claim",
    "Experiment",
    "Finding",
    "Measurement",
    "NotMeasured",
    "PaperError",
    "Runs",
    "Series",
    "Verdict",
    "auto_tables",
    "choose",
    "document",
    "fill_page",
    "headline_table",
    "paired",
    "run_plans",
    "save_figures",
    "verify",
    "write_document",
]
