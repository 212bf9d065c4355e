"""Which strategy to use: the rule, applied to a real shift and to corruptions, and in words.

`evaluate_shift` measures strategies on images from before and after a shift. `rule.py` has the rule; nothing is
recommended that its intervals do not support.
"""

from predbn.common import needs_extra

with needs_extra("eval"):
    import pandas as _pandas  # noqa: F401

from .corruptions import UnderCorruptions, under_corruptions
from .real_shift import RealShift, StrategyOnShift, is_real_shift, real_shifts
from .rule import Candidate, Comparison, Recommendation, recommend
from .sentences import python_lines, real_shift_sentences, recommendation_sentences
from .shift_run import ShiftResults, evaluate_shift, read_findings, run_shift, shift_plan

__all__ = [
    "Candidate",
    "Comparison",
    "RealShift",
    "Recommendation",
    "ShiftResults",
    "StrategyOnShift",
    "UnderCorruptions",
    "evaluate_shift",
    "is_real_shift",
    "python_lines",
    "read_findings",
    "real_shift_sentences",
    "real_shifts",
    "recommend",
    "recommendation_sentences",
    "run_shift",
    "shift_plan",
    "under_corruptions",
]
