"""What a metric is called, what it means in one line, and which way is better."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Meaning", "meaning", "ordered"]

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Meaning:
    """One metric as a reader meets it. `better` is None where neither direction is good in itself."""

    name: str
    label: str
    better: Literal["higher", "lower"] | None
    percent: bool
    sentence: str

    @property
    def direction(self) -> str:
        """The direction in words, or nothing."""
        return f"{self.better} is better" if self.better else ""

    @property
    def axis_format(self) -> str:
        """The d3 format of an axis (fixed digits: those of "g" are one too few for some steps)."""
        return "~%" if self.percent else "~f"

    @property
    def sign(self) -> int:
        """What a difference is multiplied with, so that positive is better."""
        return -1 if self.better == "lower" else 1

    def number(self, value: float) -> str:
        """A value without its unit: a table's heading has it."""
        if not math.isfinite(value):
            return "–" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
        return (f"{100 * value:.1f}" if self.percent else f"{value:.3f}").replace("-", MINUS)

    def text(self, value: float) -> str:
        """A value as a sentence has it: `70.4 %`, or `0.081`."""
        return self.number(value) + ("\N{NO-BREAK SPACE}%" if self.percent and math.isfinite(value) else "")

    def change(self, difference: float) -> str:
        """A difference with its sign: percentages in points."""
        text = self.number(difference)
        return text if text.startswith(MINUS) or text == "–" else f"+{text}"

    @property
    def change_unit(self) -> str:
        """What `change` counts in."""
        return "percentage points" if self.percent else f"units of {self.label}"


_KNOWN = (
    Meaning("accuracy", "accuracy", "higher", True, "The share of images whose most probable class is the label."),
    Meaning("top5", "top-5 accuracy", "higher", True, "The share of images with the label among the five likeliest."),
    Meaning(
        "brier",
        "Brier score",
        "lower",
        False,
        "The squared distance between the predicted distribution and the one-hot label, summed over the classes.",
    ),
    Meaning(
        "ece",
        "ECE",
        "lower",
        False,
        "Expected calibration error: how far confidence is from accuracy, within bins of equal confidence, "
        "on average over the predictions.",
    ),
    Meaning("nll", "NLL", "lower", False, "Negative log-likelihood: minus the logarithm of the label's probability."),
    Meaning(
        "auc", "AUC", "higher", False, "The chance that a positive example is ranked above a negative one: 0.5 is luck."
    ),
    Meaning(
        "mce",
        "mCE",
        "lower",
        True,
        "Mean corruption error: the error relative to AlexNet's, averaged over corruptions.",
    ),
    Meaning(
        "divergence",
        "divergence of embeddings",
        "lower",
        False,
        "How far the embeddings are from those of the training data: a divergence of Gaussian fits, in nats.",
    ),
    Meaning(
        "distance",
        "distance of activations",
        "lower",
        False,
        "How far a value of a batch norm layer's channel has to go, on average, to lie as on the training data, in "
        "standard deviations.",
    ),
    Meaning("outside", "activations outside the training range", "lower", True, "The share of such values."),
    Meaning(
        "spectrum_gap",
        "gap of the embeddings' spectrum",
        "lower",
        False,
        "Mean absolute difference of the logarithms of the largest eigenvalues of the covariance from the training "
        "data's.",
    ),
    Meaning("logit_gap", "gap of the logits' spectrum", "lower", False, "The same for the logits."),
    Meaning("logit_size", "size of the logits", None, False, "The root mean square of the logits."),
    Meaning("confidence", "confidence", None, True, "The mean probability that the model gives its own prediction."),
)
_BY_NAME = {known.name: known for known in _KNOWN}


def meaning(metric: str) -> Meaning:
    """What is known of a metric; one that is not known is drawn under its own name, with no better or worse."""
    return _BY_NAME.get(metric) or Meaning(metric, metric, None, False, "")


def ordered(metrics: Iterable[str]) -> list[str]:
    """Metrics as a report has them: accuracy first, those without a direction last."""
    place = {name: index for index, name in enumerate(_BY_NAME)}
    return sorted(set(metrics), key=lambda metric: (meaning(metric).better is None, place.get(metric, 99), metric))
