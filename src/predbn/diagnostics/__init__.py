"""What happens inside a model: distributions of activations, distances, spectra, confidence, all in one pass.

`diagnose(model, reference, shifted)` answers in words: has the data shifted, in which layers, and does prediction-time
BN undo it? `profiles` gives the distributions themselves, for any model, data and strategies.
"""

from .data import ImageSubset, open_diagnosis_data
from .diagnose import diagnose
from .diagnosis import Diagnosis, Shift, has_shifted, shift_threshold
from .distance import distance_unit, paper_divergence, wasserstein
from .gaussian import Gaussian, spectrum
from .profile import Profile, profile, profiles

__all__ = [
    "Diagnosis",
    "Gaussian",
    "ImageSubset",
    "Profile",
    "Shift",
    "diagnose",
    "distance_unit",
    "has_shifted",
    "open_diagnosis_data",
    "paper_divergence",
    "profile",
    "profiles",
    "shift_threshold",
    "spectrum",
    "wasserstein",
]
