"""What predictions and labels must be: the checks of the functions and of the accumulators.

Shapes and dtypes are known on the host and are checked at once. Reading values from a GPU forces a synchronisation, so
`probability_faults` and `score_faults` only count what is wrong, on the device, and `raise_first` turns the counts
into an error: at once in the functions; in an accumulator on a GPU, when a result is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from predbn.common import MetricError

ROW_SUM_TOLERANCE = 1e-2
"""Allowed deviation of a row's sum from 1: bfloat16 rounds each probability by at most 1 part in 256."""

SCORE_MESSAGES = (
    "{} scores are NaN, below 0 or above 1; give probabilities",
    "{} labels are neither 0 nor 1; a binary score needs binary labels",
)
"""What each count of `score_faults` means."""


def probability_messages(classes: int) -> tuple[str, ...]:
    """What each count of `probability_faults` means."""
    return (
        "{} probabilities are NaN, below 0 or above 1; give the softmax of the logits",
        "{} rows of probabilities do not sum to 1; give the softmax of the logits",
        f"{{}} labels are outside 0 to {classes - 1}; the labels must be those of the {classes} predicted classes",
    )


def prepare_inputs(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Checked probabilities in float64 and labels in int64: the first step of every function."""
    check_shapes(probabilities, labels)
    if len(labels) == 0:
        raise MetricError("there is no example to score; give at least one")
    raise_first(probability_faults(probabilities, labels).tolist(), probability_messages(probabilities.shape[1]))
    return probabilities.double(), labels.long()


def check_shapes(predictions: Tensor, labels: Tensor, classes: int | None = None) -> None:
    """Check that predictions are [n, classes] floating point and labels are [n] integers."""
    if not predictions.is_floating_point():
        raise MetricError(f"predictions are {_dtype_name(predictions)}; give floating point")
    if predictions.dim() != 2 or predictions.shape[1] == 0:
        raise MetricError(f"predictions have shape {tuple(predictions.shape)}; give [examples, classes]")
    if classes is not None and predictions.shape[1] != classes:
        raise MetricError(f"predictions have {predictions.shape[1]} classes where {classes} are expected")
    check_labels(labels, predictions)


def check_scores(scores: Tensor, labels: Tensor) -> None:
    """Check that binary scores are [n] floating point and labels are [n] integers."""
    if scores.dim() != 1 or not scores.is_floating_point():
        raise MetricError(f"scores have shape {tuple(scores.shape)} and {scores.dtype}; give [n] floating point")
    check_labels(labels, scores)


def check_labels(labels: Tensor, predictions: Tensor) -> None:
    """Check that labels are [n] integers on the device of the n predictions."""
    examples = len(predictions)
    if labels.is_floating_point() or labels.is_complex():
        raise MetricError(f"labels are {_dtype_name(labels)}; give integers")
    if labels.shape != (examples,):
        raise MetricError(f"labels have shape {tuple(labels.shape)}; give one for each of the {examples} examples")
    if labels.device != predictions.device:
        raise MetricError(f"labels are on {labels.device} and predictions on {predictions.device}; bring them together")


def check_positive(name: str, value: int) -> None:
    """Check that a number of bins, classes or the like is at least 1."""
    if value < 1:
        raise MetricError(f"{name}={value}; give 1 or more")


def probability_faults(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Counts, on the device: values that are not probabilities, rows that do not sum to 1, labels out of range."""
    row_sums = probabilities.sum(1, dtype=torch.float64)
    counts = (
        _outside(probabilities, 0, 1).sum(),
        ((row_sums - 1).abs() > ROW_SUM_TOLERANCE).sum(),
        _outside(labels, 0, probabilities.shape[1] - 1).sum(),
    )
    return torch.stack(counts)


def score_faults(scores: Tensor, labels: Tensor) -> Tensor:
    """Counts, on the device: scores that are not probabilities, labels that are neither 0 nor 1."""
    return torch.stack((_outside(scores, 0, 1).sum(), _outside(labels, 0, 1).sum()))


def raise_first(counts: Sequence[int], messages: Sequence[str]) -> None:
    """Raise an error for the first count that is not 0."""
    for count, message in zip(counts, messages, strict=True):
        if count:
            raise MetricError(message.format(count))


def _outside(values: Tensor, low: int, high: int) -> Tensor:
    """Whether each value is not between two bounds; NaN never is."""
    return ~((values >= low) & (values <= high))


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
