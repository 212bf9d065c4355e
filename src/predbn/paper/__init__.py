"""The paper: one module a figure or table, with its plan, its drawing and its claim as a check on results.

`predbn.paper.experiments` has the modules; a few plans serve all of them, and `Runs` reads their results.
"""

from predbn.common import NotMeasured, PaperError

from .auto_tables import auto_tables, fill_page
from .claims import Claim, Finding, Measurement, Verdict
from .document import document, write_document
from .experiment import Experiment
from .figures import save_figures
from .headline import headline_table
from .plans import PLANS
from .registry import EXPERIMENTS, choose, plans_of
from .run import run_plan, run_plans
from .runs import Runs
from .series import Series, paired
from .verify import QUICK as QUICK_WARNING
from .verify import as_data as findings_as_data
from .verify import summary as verdict_summary
from .verify import verify

__all__ = [
    "EXPERIMENTS",
    "PLANS",
    "QUICK_WARNING",
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
    "findings_as_data",
    "headline_table",
    "paired",
    "plans_of",
    "run_plan",
    "run_plans",
    "save_figures",
    "verdict_summary",
    "verify",
    "write_document",
]
