"""What happens inside a model: distributions of activations, divergences, spectra, confidence; all of it streaming.

`diagnose(model, reference, shifted)` answers in words: has the data shifted, in which layers, does prediction-time BN
bring it back? `profiles` gives the distributions themselves, for any model, data and strategies.
"""

from predbn.common import DiagnosticError

from .confidence import Confidence
from .diagnose import diagnose
from .diagnosis import Diagnosis, Shift
from .distance import noise, unit, wasserstein
from .distribution import Distribution
from .divergence import kl, log_ratio, paper_divergence
from .gaussian import Gaussian
from .histogram import Bins, Histogram
from .profile import Profile, profile, profiles
from .sources import open_data as open_diagnosis_data
from .spectrum import spectrum
from .verdict import is_shifted, threshold
from .watch import Pass, Watch

__all__ = [
    "Bins",
    "Confidence",
    "Diagnosis",
    "DiagnosticError",
    "Distribution",
    "Gaussian",
    "Histogram",
    "Pass",
    "Profile",
    "Shift",
    "Watch",
    "diagnose",
    "is_shifted",
    "kl",
    "log_ratio",
    "noise",
    "open_diagnosis_data",
    "paper_divergence",
    "profile",
    "profiles",
    "spectrum",
    "threshold",
    "unit",
    "wasserstein",
]
