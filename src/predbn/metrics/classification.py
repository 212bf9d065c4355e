"""Accuracy, and the two proper scoring rules: negative log-likelihood and Brier score."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from predbn.common import MetricError

from .checks import check_not_empty, check_positive, check_shapes, prepare_inputs, probability_messages, raise_first
from .exact_sums import UNIT_BITS

Reduction: TypeAlias = Literal["mean", "none"]

_SQUARE_BITS = 52
"""Squares of probabilities are rounded to whole numbers of 2^-52, about the precision of float64 near 1."""


def accuracy(probabilities: Tensor, labels: Tensor, *, top: int = 1) -> Tensor:
    """The share of examples whose label is among the `top` most probable classes."""
    check_positive("top", top)
    return (ranks(*prepare_inputs(probabilities, labels)) < top).double().mean()


def ranks(probabilities: Tensor, labels: Tensor) -> Tensor:
    """How many classes come before the label if classes are sorted by falling probability.

    Classes of equal probability are sorted by their index. So rank 0 is what argmax gives, and the ranks are the same
    on every device, while `topk` does not specify the order of ties.
    """
    label_probability = probabilities.gather(1, labels[:, None])
    is_before = torch.arange(probabilities.shape[1], device=labels.device) < labels[:, None]
    return ((probabilities > label_probability) | ((probabilities == label_probability) & is_before)).sum(1)


def nll(predictions: Tensor, labels: Tensor, *, from_logits: bool = False, reduction: Reduction = "mean") -> Tensor:
    """The negative log-likelihood −ln p_y in nats; infinite if the label has probability 0.

    With `from_logits` the predictions are logits, and −ln p_y is −log_softmax(z)_y, which stays finite where the
    softmax itself rounds to 0. `reduction="none"` returns one value per example.
    """
    if from_logits:
        logits, labels = _prepare_logits(predictions, labels)
        return _reduce(-of_label(torch.log_softmax(logits, 1), labels), reduction)
    probabilities, labels = prepare_inputs(predictions, labels)
    return _reduce(-of_label(probabilities, labels).log(), reduction)


def brier(probabilities: Tensor, labels: Tensor, *, per_class: bool = False, reduction: Reduction = "mean") -> Tensor:
    """The Brier score Σ_c (p_c − [c = y])², between 0 and 2.

    `per_class` divides it by the number of classes, as some tables do: .000514 there is .514 here for 1000 classes.
    `reduction="none"` returns one value per example.
    """
    wide, labels = prepare_inputs(probabilities, labels)
    distance = wide.scatter_add(1, labels[:, None], torch.full_like(wide[:, :1], -1)).square()
    return _reduce(distance.mean(1) if per_class else distance.sum(1), reduction)


def brier_units(probabilities: Tensor, labels: Tensor) -> Tensor:
    """`brier` of each example as a whole number of 2^-32, for exact sums.

    It is Σ_c p_c² − 2 p_y + 1 with every term rounded to 2^-52, so the sum over classes is one of integers and does
    not depend on the order in which a device adds. (`brier` squares the differences instead: more precise when the
    score is close to 0, and differentiable.)
    """
    scale = 1 << _SQUARE_BITS
    squares = (probabilities * probabilities * scale).round().long().sum(1)
    exact = squares - (2 * of_label(probabilities, labels) * scale).round().long() + scale
    shift = _SQUARE_BITS - UNIT_BITS
    return (exact + (1 << (shift - 1))) >> shift


def of_label(values: Tensor, labels: Tensor) -> Tensor:
    """The value of the label's class in each row."""
    return values.gather(1, labels[:, None])[:, 0]


def binary(probabilities: Tensor) -> Tensor:
    """The two columns (1 − p, p) for a binary model, from [n] or [n, 1] probabilities of label 1.

    Then every metric for classes applies; p = 1/2 counts as a prediction of label 0. The Brier score over both columns
    is twice (p − y)²; `per_class=True` gives (p − y)² itself.
    """
    if not probabilities.is_floating_point():
        raise MetricError(f"probabilities are {str(probabilities.dtype).removeprefix('torch.')}; give floating point")
    if probabilities.dim() not in (1, 2) or (probabilities.dim() == 2 and probabilities.shape[1] != 1):
        raise MetricError(f"binary probabilities have shape {tuple(probabilities.shape)}; give [n] or [n, 1]")
    positive = probabilities.reshape(-1).to(torch.promote_types(probabilities.dtype, torch.float32))
    return torch.stack((1 - positive, positive), 1)


def _prepare_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    check_shapes(logits, labels)
    check_not_empty(labels)
    wide, labels = logits.double(), labels.long()
    usable = torch.isfinite(wide.amax(1))
    outside = (labels < 0) | (labels >= wide.shape[1])
    raise_first(
        [int((~usable).sum()), int(outside.sum())],
        [
            "{} rows of logits hold NaN or infinity; look for an overflow in the model",
            probability_messages(wide.shape[1])[2],
        ],
    )
    return wide, labels


def _reduce(values: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "none":
        return values
    if reduction == "mean":
        return values.mean()
    raise MetricError(f"reduction={reduction!r}; it is 'mean' or 'none'")
