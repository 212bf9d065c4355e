"""The two proper scoring rules: negative log-likelihood and Brier score."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from predbn.common import MetricError

from .checks import check_not_empty, check_shapes, prepare, probability_messages, refuse

Reduction: TypeAlias = Literal["mean", "none"]


def nll(predictions: Tensor, labels: Tensor, *, from_logits: bool = False, reduction: Reduction = "mean") -> Tensor:
    """The negative log-likelihood −ln p_y in nats; infinite where the label was given probability 0.

    With `from_logits` the predictions are logits, and −ln p_y is −log_softmax(z)_y, which stays finite
    where the softmax itself rounds to 0. `reduction="none"` gives one value an example.
    """
    if from_logits:
        logits, labels = _prepare_logits(predictions, labels)
        log_probabilities = torch.log_softmax(logits, 1)
    else:
        probabilities, labels = prepare(predictions, labels)
        log_probabilities = probabilities.log()
    return _reduce(-log_probabilities.gather(1, labels[:, None])[:, 0], reduction)


def brier(probabilities: Tensor, labels: Tensor, *, per_class: bool = False, reduction: Reduction = "mean") -> Tensor:
    """The Brier score Σ_c (p_c − [c = y])², between 0 and 2.

    `per_class` divides it by the number of classes, which is what some tables print: .000514 there is
    .514 here for 1000 classes. `reduction="none"` gives one value an example.
    """
    wide, labels = prepare(probabilities, labels)
    distance = wide.scatter_add(1, labels[:, None], torch.full_like(wide[:, :1], -1)).square()
    return _reduce(distance.mean(1) if per_class else distance.sum(1), reduction)


def binary(probabilities: Tensor) -> Tensor:
    """The two columns (1 − p, p) of a binary model's one: [n] or [n, 1] probabilities of label 1.

    Everything for classes then holds for two; p = 1/2 counts as a prediction of label 0. The Brier score
    over both columns is twice (p − y)²; `per_class=True` gives (p − y)² itself.
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
    refuse(
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
