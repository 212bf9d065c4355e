"""What predictions and labels must be, said once for the functions and the accumulators.

Shapes and dtypes are known on the host and are checked at once. Values are not: on a GPU to look at them
is to wait for them. So `faults` only counts what is wrong, on the device, and `refuse` turns counts into
one sentence: at once for the functions, when a result is asked for by an accumulator on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from predbn.common import MetricError

ROW_SUM_TOLERANCE = 1e-2
"""How far from 1 a row of probabilities may sum: bfloat16 rounds each by at most 1 part in 256."""


def check_shapes(predictions: Tensor, labels: Tensor, classes: int | None = None) -> None:
    """Refuse what is not [n, classes] floating point with [n] integer labels."""
    if not predictions.is_floating_point():
        raise MetricError(f"predictions are {_plain(predictions.dtype)}; give floating point")
    if predictions.dim() != 2 or predictions.shape[1] == 0:
        hint = "; for the one column of a binary model see predbn.metrics.binary" if predictions.dim() == 1 else ""
        raise MetricError(f"predictions have shape {tuple(predictions.shape)}; give [examples, classes]{hint}")
    if classes is not None and predictions.shape[1] != classes:
        raise MetricError(f"predictions have {predictions.shape[1]} classes where {classes} are expected")
    check_labels(labels, predictions)


def check_labels(labels: Tensor, predictions: Tensor) -> None:
    """Refuse labels that are not [n] integers beside n predictions."""
    examples = len(predictions)
    if labels.is_floating_point() or labels.is_complex():
        raise MetricError(f"labels are {_plain(labels.dtype)}; give integers")
    if labels.shape != (examples,):
        raise MetricError(f"labels have shape {tuple(labels.shape)}; give one for each of the {examples} examples")
    if labels.device != predictions.device:
        raise MetricError(f"labels are on {labels.device} and predictions on {predictions.device}; bring them together")


def probability_faults(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Counts, on the device: values that are no probability, rows that do not sum to 1, labels out of range."""
    rows = probabilities.sum(1, dtype=torch.float64)
    counts = (
        _outside(probabilities, 0, 1).sum(),
        ((rows - 1).abs() > ROW_SUM_TOLERANCE).sum(),
        _outside(labels, 0, probabilities.shape[1] - 1).sum(),
    )
    return torch.stack(counts)


def probability_messages(classes: int) -> tuple[str, ...]:
    """What each count of `probability_faults` means."""
    return (
        "{} probabilities are NaN, below 0 or above 1; give the softmax of the logits",
        "{} rows of probabilities do not sum to 1; give the softmax of the logits",
        f"{{}} labels are outside 0 to {classes - 1}; the labels must be those of the {classes} predicted classes",
    )


def score_faults(scores: Tensor, labels: Tensor) -> Tensor:
    """Counts, on the device: scores that are no probability, labels that are neither 0 nor 1."""
    return torch.stack((_outside(scores, 0, 1).sum(), _outside(labels, 0, 1).sum()))


SCORE_MESSAGES = (
    "{} scores are NaN, below 0 or above 1; give probabilities",
    "{} labels are neither 0 nor 1; a binary score needs binary labels",
)


def refuse(counts: Sequence[int], messages: Sequence[str]) -> None:
    """Raise for the first count that is not 0."""
    for count, message in zip(counts, messages, strict=True):
        if count:
            raise MetricError(message.format(count))


def prepare(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Checked probabilities in float64 and labels in int64: what every function of this room begins with."""
    check_shapes(probabilities, labels)
    check_not_empty(labels)
    refuse(probability_faults(probabilities, labels).tolist(), probability_messages(probabilities.shape[1]))
    return probabilities.double(), labels.long()


def check_not_empty(labels: Tensor) -> None:
    """Refuse to average over nothing."""
    if len(labels) == 0:
        raise MetricError("there is no example to score; give at least one")


def check_positive(name: str, value: int) -> None:
    """Refuse a number of bins, classes or the like that is not 1 or more."""
    if value < 1:
        raise MetricError(f"{name}={value}; give 1 or more")


def _outside(values: Tensor, low: int, high: int) -> Tensor:
    """Whether a value is not between two bounds; NaN is not between any."""
    return ~((values >= low) & (values <= high))


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
