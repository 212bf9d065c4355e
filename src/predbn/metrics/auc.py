"""Area under the ROC curve."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import MetricError

from .calibration import sum_by_bin
from .checks import SCORE_MESSAGES, check_labels, check_not_empty, refuse


def auc(scores: Tensor, labels: Tensor) -> Tensor:
    """The probability that an example of label 1 scores above one of label 0, ties counting half.

    Scores are [n] of any scale; only their order matters. Exact: pairs are counted in integers.
    """
    if scores.dim() != 1 or not scores.is_floating_point():
        raise MetricError(f"scores have shape {tuple(scores.shape)} and {scores.dtype}; give [n] floating point")
    check_labels(labels, scores)
    check_not_empty(labels)
    refuse(
        [int(scores.isnan().sum()), int(((labels != 0) & (labels != 1)).sum())],
        ["{} scores are NaN; look for an overflow in the model", SCORE_MESSAGES[1]],
    )
    values, which = scores.unique(return_inverse=True)
    positives = sum_by_bin(labels.long(), which, len(values))
    negatives = sum_by_bin(1 - labels.long(), which, len(values))
    return torch.tensor(area(positives, negatives), dtype=torch.float64, device=scores.device)


def area(positives: Tensor, negatives: Tensor) -> float:
    """The area from the numbers of positives and negatives at each score, in rising order:
    Σ_i P_i (N_1 + … + N_{i−1} + N_i / 2) / (P N)."""
    above_twice = positives * (2 * negatives.cumsum(0) - negatives)
    return int(above_twice.sum()) / (2 * pairs(positives, negatives))


def pairs(positives: Tensor, negatives: Tensor) -> int:
    """P N, the number of pairs of one positive and one negative."""
    of_each = int(negatives.sum()), int(positives.sum())
    if 0 in of_each:
        raise MetricError(f"the AUC needs examples of both labels and there is none of label {of_each.index(0)}")
    return of_each[0] * of_each[1]
