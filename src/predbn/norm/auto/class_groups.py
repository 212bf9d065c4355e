"""Groups of similar classes, for models with too many classes to tell each of them from a few thousand examples.

Similar classes have high scores for the same examples: a model that sees a terrier gives a high score to other
terriers too. So two classes belong together if their scores correlate with those of all classes in the same way. This
needs no labels and no knowledge of the model, and classes that were never predicted have a group as well.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MIN_VARIANCE = 1e-12


class ScoreCorrelation:
    """The correlation of the scores of all classes, accumulated batch by batch in double precision."""

    def __init__(self) -> None:
        self.size = 0
        self._sum = torch.zeros(())
        self._products = torch.zeros(())

    def update(self, scores: Tensor) -> None:
        """Add the scores of a batch, [N, K]. A score is compared with the mean score of its example."""
        scores = scores[scores.isfinite().all(1)].double()
        scores = scores - scores.mean(1, keepdim=True)
        self.size += len(scores)
        self._sum = self._sum + scores.sum(0)
        self._products = self._products + scores.T @ scores

    def result(self) -> Tensor:
        """[K, K]; zeros for a class whose score never changes."""
        mean = self._sum / self.size
        covariance = self._products / self.size - mean * mean[:, None]
        std = covariance.diagonal().clamp(min=_MIN_VARIANCE).sqrt()
        return covariance / std / std[:, None]

    def groups(self, count: int) -> Tensor:
        """The group of each class, [K], in at most `count` groups: rows of the correlation matrix that are alike."""
        return ward_groups(self.result().cpu(), count).to(self._products.device)


def ward_groups(rows: Tensor, count: int) -> Tensor:
    """The group of each row, in at most `count` groups, numbered by their first rows.

    Ward's method joins the two groups whose union adds least to the sum of squares within groups, until `count` are
    left. A union of i and j, of n_i and n_j rows, adds c_ij = |centre_i − centre_j|²·n_i·n_j/(n_i + n_j); after it, a
    union with k adds

        ((n_i + n_k)·c_ik + (n_j + n_k)·c_jk − n_k·c_ij) / (n_i + n_j + n_k)

    scipy does the same faster, but the method needs torch and numpy only, and a thousand rows take about a second.
    """
    groups, sizes = torch.arange(len(rows)), rows.new_ones(len(rows))
    costs = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square() / 2
    costs.fill_diagonal_(torch.inf)
    for _ in range(len(rows) - count):
        # numpy finds the minimum of a million numbers six times as fast as torch.
        i, j = sorted(divmod(int(costs.numpy().argmin()), len(rows)))
        union = (sizes[i] + sizes) * costs[i] + (sizes[j] + sizes) * costs[j] - sizes * costs[i, j]
        union /= sizes[i] + sizes[j] + sizes
        union[i] = torch.inf
        costs[i] = costs[:, i] = union
        costs[j] = costs[:, j] = torch.inf
        sizes[i] += sizes[j]
        groups[groups == j] = i
    numbered: Tensor = groups.unique(return_inverse=True)[1]
    return numbered
