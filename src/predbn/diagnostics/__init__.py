"""Examine a model, and profile the distributions of its activations. No labels are needed.

`examine(model, reference, data)` answers: are the stored statistics of this model right for its weights, has the data
shifted away from the reference, in which layers, and what should be done? `profiles` gives the distributions of
activations, for any model, data and strategies, as the paper's figures show them.
"""

from .distance import distance_unit, paper_divergence, wasserstein
from .distribution import Distribution
from .examination import Examination, LayerExamination
from .examine import examine
from .finding import Finding
from .profile import Profile, profile, profiles

__all__ = [
    "Distribution",
    "Examination",
    "Finding",
    "LayerExamination",
    "Profile",
    "distance_unit",
    "examine",
    "paper_divergence",
    "profile",
    "profiles",
    "wasserstein",
]
