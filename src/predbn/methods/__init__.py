"""Methods turn the logits of models into probabilities: vanilla, ensemble, temperature scaling.

A method works on logits and knows nothing of batch norm, so each one can be combined with every strategy.
"""

from predbn.common import MethodError

from .base import Logits, Method, Vanilla, find_method, method_class
from .ensemble import Ensemble
from .temperature import Temperature, fit_temperature

__all__ = [
    "Ensemble",
    "Logits",
    "Method",
    "MethodError",
    "Temperature",
    "Vanilla",
    "find_method",
    "fit_temperature",
    "method_class",
]
