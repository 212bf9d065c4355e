"""Area under the ROC curve of a stream, in constant memory; `sklearn.metrics.roc_auc_score` has the exact one."""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import MetricError

from .calibration import bin_of, equal_width_edges, sum_by_bin
from .checks import SCORE_MESSAGES, check_positive, check_scores, score_faults
from .exact_sums import ExactSums


class ScoreHistogram(ExactSums):
    """The AUC of a stream in constant memory, from a histogram of the scores of each label.

    Scores are probabilities of label 1, counted in `cells` bins of equal width; scores in one bin count as ties. That
    changes the AUC by at most half the share of (positive, negative) pairs within one bin: less than 1e-5 for 65,536
    bins and scores that spread.
    """

    def __init__(self, *, cells: int = 1 << 16) -> None:
        check_positive("cells", cells)
        self.cells = cells
        super().__init__({"examples": cells, "positives": cells}, SCORE_MESSAGES)

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add [n] scores between 0 and 1 and [n] labels (0 and 1, or booleans)."""
        check_scores(scores, labels)
        with torch.no_grad():
            labels = labels.long()
            clean_scores = scores.double().nan_to_num(0.0).clamp(0, 1)  # wrong values are counted as faults
            which = bin_of(clean_scores, equal_width_edges(self.cells, scores.device))
            sums = {
                "examples": sum_by_bin(torch.ones_like(which), which, self.cells),
                "positives": sum_by_bin(labels, which, self.cells),
            }
            self._add(len(labels), score_faults(scores, labels), sums)

    def auc(self) -> float:
        totals = self._totals()
        return _area(totals["positives"], totals["examples"] - totals["positives"])


def _area(positives: Tensor, negatives: Tensor) -> float:
    """The area from the numbers of positives and negatives at each score, in rising order:
    Σ_i P_i (N_1 + … + N_{i−1} + N_i / 2) / (P N)."""
    by_label = int(negatives.sum()), int(positives.sum())
    if 0 in by_label:
        raise MetricError(f"the AUC needs examples of both labels and there is none of label {by_label.index(0)}")
    twice_the_wins = positives * (2 * negatives.cumsum(0) - negatives)
    return int(twice_the_wins.sum()) / (2 * by_label[0] * by_label[1])
