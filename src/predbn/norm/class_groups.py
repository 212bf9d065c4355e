"""Groups of similar classes, for models with too many classes to tell each of them from a few thousand examples.

Similar classes have high scores for the same examples: a model that sees a terrier gives a high score to other
terriers too. So two classes belong together if their scores correlate with those of all classes in the same way. This
needs no labels and no knowledge of the model, and classes that were never predicted have a group as well.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST_VARIANCE = 1e-12


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
        std = covariance.diagonal().clamp(min=_LEAST_VARIANCE).sqrt()
        return covariance / std / std[:, None]

    def groups(self, count: int) -> Tensor:
        """The group of each class, [K], in at most `count` groups: rows of the correlation matrix that are alike.

        Ward's method joins the two groups whose union adds least to the variance within groups, until `count` are left.
        """
        from scipy.cluster.hierarchy import fcluster, linkage  # here, because importing it takes a while

        tree = linkage(self.result().cpu().numpy(), method="ward")
        return torch.from_numpy(fcluster(tree, count, criterion="maxclust") - 1).long().to(self._products.device)
