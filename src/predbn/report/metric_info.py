"""What a metric is called, what it means in one line, which way is better, and how its values are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from predbn.metrics import own_metrics

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class MetricInfo:
    """One metric as a reader sees it. `better` is None if neither direction is good in itself."""

    name: str
    label: str
    better: Literal["higher", "lower"] | None
    percent: bool
    description: str

    @property
    def direction(self) -> str:
        """Which way is better in words, or nothing."""
        return f"{self.better} is better" if self.better else ""

    @property
    def title(self) -> str:
        return capitalise(self.label)

    @property
    def chart_title(self) -> str:
        """The title with the direction: "Accuracy (higher is better)"."""
        return f"{self.title} ({self.direction})" if self.direction else self.title

    @property
    def axis_format(self) -> str:
        """The d3 format of an axis (fixed digits: "g" has one digit too few for some steps)."""
        return "~%" if self.percent else "~f"

    @property
    def tooltip_format(self) -> str:
        """The d3 format of a value in a tooltip."""
        return ".1%" if self.percent else ".3~g"

    @property
    def sign(self) -> int:
        """The factor that makes a positive difference an improvement."""
        return -1 if self.better == "lower" else 1

    def number(self, value: float) -> str:
        """A value without its unit, for a table whose heading has the unit."""
        if not math.isfinite(value):
            return "–" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
        return (f"{100 * value:.1f}" if self.percent else f"{value:.3f}").replace("-", MINUS)

    def text(self, value: float) -> str:
        """A value with its unit, for a sentence: `70.4 %`, or `0.081`."""
        return self.number(value) + ("\N{NO-BREAK SPACE}%" if self.percent and math.isfinite(value) else "")

    def change(self, difference: float) -> str:
        """A difference with its sign, without its unit."""
        number = self.number(difference)
        return number if number.startswith(MINUS) or number == "–" else f"+{number}"

    @property
    def change_unit(self) -> str:
        return "percentage points" if self.percent else f"units of {self.label}"


_METRICS: dict[str, tuple[str, Literal["higher", "lower"] | None, bool]] = {
    "accuracy": ("accuracy", "higher", True),
    "top5": ("top-5 accuracy", "higher", True),
    "brier": ("Brier score", "lower", False),
    "ece": ("ECE", "lower", False),
    "nll": ("NLL", "lower", False),
    "auc": ("AUC", "higher", False),
    "success": ("success of the attack", "lower", True),
    "mce": ("mCE", "lower", True),
    "divergence_crops": ("divergence of embeddings", "lower", False),
    "distance_crops": ("distance of activations", "lower", False),
    "outside_crops": ("activations outside the training range", "lower", True),
    "spectrum_gap_crops": ("gap of the embeddings' spectrum", "lower", False),
    "logit_gap_crops": ("gap of the logits' spectrum", "lower", False),
    "divergence": ("divergence of embeddings", "lower", False),
    "distance": ("distance of activations", "lower", False),
    "outside": ("activations outside the training range", "lower", True),
    "spectrum_gap": ("gap of the embeddings' spectrum", "lower", False),
    "logit_gap": ("gap of the logits' spectrum", "lower", False),
    "logit_size": ("size of the logits", None, False),
    "confidence": ("confidence", None, True),
}
"""The label of each metric, which way is better, and whether it is shown in per cent."""

_DESCRIPTIONS = {
    "accuracy": "The share of images whose most probable class is the label.",
    "top5": "The share of images whose label is among the five most probable classes.",
    "brier": "The squared distance between the predicted distribution and the one-hot label, summed over the classes.",
    "ece": "Expected calibration error: how far confidence is from accuracy, within bins of equal confidence, on "
    "average over the predictions.",
    "nll": "Negative log-likelihood: minus the log of the label's probability.",
    "auc": "The probability that a positive example scores above a negative one; 0.5 is chance.",
    "success": "The share of the attacked batches in which the chosen image is predicted as the class that the "
    "attacker wants.",
    "mce": "Mean corruption error: the error relative to AlexNet's, averaged over corruptions.",
    "divergence": "How far the embeddings are from those of the training data: a divergence of Gaussian fits, in nats.",
    "distance": "How far the channels of the batch norm layers are from their distribution on the training data, in "
    "standard deviations (1-Wasserstein distance).",
    "outside": "The share of values outside it.",
    "spectrum_gap": "How far the largest eigenvalues of the covariance are from those of the training data: the mean "
    "absolute difference of their logarithms.",
    "logit_gap": "The same for the logits.",
    "logit_size": "The root mean square of the logits.",
    "confidence": "The mean probability that the model gives its own prediction.",
}
_BY_NAME = {
    name: MetricInfo(name, *shown, _DESCRIPTIONS[name.removesuffix("_crops")]) for name, shown in _METRICS.items()
}


def metric_info(metric: str) -> MetricInfo:
    """How a metric is shown; an unknown one has its own name and no direction."""
    if metric in _BY_NAME:
        return _BY_NAME[metric]
    registered = own_metrics().get(metric)
    if registered is not None:
        return MetricInfo(metric, metric.replace("_", " "), registered.better, False, registered.description)
    return MetricInfo(metric, metric, None, False, "")


def sort_metrics(metrics: Iterable[str]) -> list[str]:
    """The different metrics in the order of a report: accuracy first, those without a direction last."""
    position = {name: index for index, name in enumerate(_BY_NAME)}
    return sorted(
        set(metrics), key=lambda metric: (metric_info(metric).better is None, position.get(metric, 99), metric)
    )


def capitalise(text: str) -> str:
    """The text with its first letter in upper case and the others as they are."""
    return text[:1].upper() + text[1:]
