"""The paper: its experiments, each with the plans it needs, its figures, and its claims as checks on results.

`predbn.paper.experiments` has the experiments, `predbn.paper.plans` what is computed for them, the `run` modules how
that is computed, `Runs` reads the results, and claims.toml has the claims in words.
"""

from predbn.common import needs_extra

with needs_extra("eval"):
    import pandas as _pandas  # noqa: F401

from .claims import Finding
from .document import headline_table, write_documents
from .experiment import Experiment
from .experiments import EXPERIMENTS, choose, plans_of
from .figures import save_figures
from .networks import TrainedNetworks
from .plans import CIFAR10, PLANS
from .run import run_plan
from .runs import Runs
from .series import Series, paired
from .verify import QUICK_WARNING, findings_as_data, verdict_summary, verify

__all__ = [
    "CIFAR10",
    "EXPERIMENTS",
    "PLANS",
    "QUICK_WARNING",
    "Experiment",
    "Finding",
    "Runs",
    "Series",
    "TrainedNetworks",
    "choose",
    "findings_as_data",
    "headline_table",
    "paired",
    "plans_of",
    "run_plan",
    "save_figures",
    "verdict_summary",
    "verify",
    "write_documents",
]
