"""Which classes a batch holds, as far as the model itself can tell.

A batch of few classes differs from the source although nothing has shifted. What its classes explain must not be taken
for a shift. The classes are those that the model predicts; labels are not needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..segments import Segments
from ..statistics import Moments, pool_over_processes


class Composition(NamedTuple):
    """The classes of a batch, or of each of S segments.

    `shares` are the shares π of the predicted classes, [K] or [S, K]; None if nothing is known about them. `doubt` is
    u = 1 − the mean confidence of the predictions, [1] or [S, 1]; 1 if nothing is known.
    """

    shares: Tensor | None = None
    doubt: Tensor | float = 1.0


def is_class_scores(output: Any) -> bool:
    """Whether a model's output are the scores of classes, [examples, classes]."""
    is_scores = isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] > 1
    return is_scores and output.is_floating_point()


def predicted_classes(
    scores: Tensor, segments: Segments | None = None, *, sync: bool = False, process_group: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The shares π of the classes that a model has predicted, […, K], the doubt u, and of how many examples, […, 1].

    With `sync` they are those of the batch that is spread over the processes of a group.
    """
    means, count = mean_predictions(scores, segments)
    if sync:
        size = int(count)
        pooled = pool_over_processes(Moments(means, torch.zeros_like(means), size, size), process_group)
        means, count = pooled.mean, torch.as_tensor(pooled.size).to(count).expand_as(count)
    return means[..., :-1], 1 - means[..., -1:], count


def mean_predictions(scores: Tensor, segments: Segments | None = None) -> tuple[Tensor, Tensor]:
    """The share of each class and the mean confidence of the predictions, […, K + 1], and of how many examples, […, 1].

    Predicted classes are counted, and not their probabilities added up, because calibration counts them too. An example
    that is not finite has no class, and the others must not notice it.
    """
    confidence, classes = scores.detach().float().softmax(1).max(1)
    is_class = (classes[:, None] == torch.arange(scores.shape[1], device=scores.device)).float()
    rows = torch.cat([is_class, confidence[:, None]], 1)
    is_finite = confidence.isfinite()[:, None]
    rows, weight = torch.where(is_finite, rows, 0.0), is_finite.float()
    if segments is None:
        total, count = rows.sum(0), weight.sum(0)
    else:
        total, count = segments.sum(rows), segments.sum(weight)
    return total / count.clamp(min=1), count


def source_shares(sizes: Tensor) -> Tensor:
    """π_s: the shares of the classes in the source, of which so many examples were seen, [K]."""
    return sizes / sizes.sum().clamp(min=1)


def shares_of_groups(shares: Tensor, groups: Tensor, count: int) -> Tensor:
    """The shares of `count` groups of classes, […, G], from those of the classes, […, K]. `groups` is each one's."""
    return shares.new_zeros(*shares.shape[:-1], count).index_add(-1, groups.to(shares.device), shares)
