"""What turns models into probabilities: vanilla, ensemble, temperature scaling, eps tuning.

A method works on logits and knows nothing of batch norm, so each combines with every strategy.
"""

from predbn.common import MethodError

from .base import Logits, Method, find, kind, names
from .ensemble import Ensemble
from .eps import EpsChoice, EpsScores, tune_eps
from .predict import labelled_logits, member_logits, predicting
from .temperature import Temperature, fit_temperature
from .vanilla import Vanilla

__all__ = [
    "Ensemble",
    "EpsChoice",
    "EpsScores",
    "Logits",
    "Method",
    "MethodError",
    "Temperature",
    "Vanilla",
    "find",
    "fit_temperature",
    "kind",
    "labelled_logits",
    "member_logits",
    "names",
    "predicting",
    "tune_eps",
]
