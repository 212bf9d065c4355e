"""What happens inside a model: stored statistics, distributions of activations, distances, spectra, confidence.

`examine(model, loader, reference)` answers: are the stored statistics of this model right for its weights and its
data, and what should be done? `diagnose(model, reference, shifted)` answers: what does this shift do inside the
network, layer by layer, and does prediction-time BN undo it? `profiles` gives the distributions themselves, for any
model, data and strategies.
"""

from .data import ImageSubset, open_diagnosis_data
from .data_statistics import DataStatistics, measure
from .diagnose import diagnose
from .diagnosis import Diagnosis, Shift, has_shifted, shift_threshold
from .distance import distance_unit, paper_divergence, wasserstein
from .examination import Examination, LayerFit
from .examine import examine
from .finding import Finding
from .fit import fit_limit
from .gaussian import Gaussian, spectrum
from .profile import Profile, profile, profiles
from .shift_findings import shift_limit

__all__ = [
    "DataStatistics",
    "Diagnosis",
    "Examination",
    "Finding",
    "Gaussian",
    "ImageSubset",
    "LayerFit",
    "Profile",
    "Shift",
    "diagnose",
    "distance_unit",
    "examine",
    "fit_limit",
    "has_shifted",
    "measure",
    "open_diagnosis_data",
    "paper_divergence",
    "profile",
    "profiles",
    "shift_limit",
    "shift_threshold",
    "spectrum",
    "wasserstein",
]
