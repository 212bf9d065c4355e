"""Methods turn the logits of models into probabilities: vanilla, ensemble, temperature scaling; and eps is tuned here.

A method works on logits and knows nothing of batch norm, so each one can be combined with every strategy.
"""

from predbn.common import MethodError

from .base import Logits, Method, Vanilla, find_method, method_class
from .ensemble import Ensemble
from .eps import EpsChoice, EpsScores, tune_eps
from .predict import member_logits
from .temperature import Temperature, fit_temperature

__all__ = [
    "Ensemble",
    "EpsChoice",
    "EpsScores",
    "Logits",
    "Method",
    "MethodError",
    "Temperature",
    "Vanilla",
    "find_method",
    "fit_temperature",
    "member_logits",
    "method_class",
    "tune_eps",
]
