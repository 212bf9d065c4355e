"""User-defined metrics, which every evaluation measures.

@register_metric("margin", better="higher", description="The probability of the label above that of the runner-up.")
def margin(probabilities, labels):
    ...
    return values  # one per example; results hold their mean over a split
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from predbn.common import MetricError, load_plugins

Function = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class OwnMetric:
    """A metric that is a mean over examples; `register_metric` explains the fields."""

    name: str
    function: Function
    better: Literal["higher", "lower"] | None
    description: str

    def sum(self, probabilities: Tensor, labels: Tensor) -> float:
        """The sum over a batch."""
        values = self.function(probabilities, labels)
        if not isinstance(values, Tensor) or tuple(values.shape) != (len(labels),):
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise MetricError(f"the metric {self.name} returned {shape}, but it must return one value per example")
        return float(values.double().sum())


_METRICS: dict[str, OwnMetric] = {}
_TAKEN = ("accuracy", "top5", "nll", "brier", "ece", "confidence", "auc", "success", "mce")


def register_metric(
    name: str, *, better: Literal["higher", "lower"] | None = None, description: str = ""
) -> Callable[[Function], Function]:
    """Measure a function of probabilities [n, classes] and labels [n] in every evaluation from now on.

    It returns one value per example, [n]. `better` says which way is better, `description` explains it in the report.
    """
    if name in _TAKEN:
        raise MetricError(f"there is a metric {name!r} already; choose another name")

    def decorator(function: Function) -> Function:
        _METRICS[name] = OwnMetric(name, function, better, description)
        return function

    return decorator


def own_metrics() -> dict[str, OwnMetric]:
    """The registered metrics by name, those of installed plugins among them."""
    load_plugins()
    return dict(_METRICS)
