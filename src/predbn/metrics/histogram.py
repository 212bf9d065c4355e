"""What needs the order of all scores, AUC and equal-mass bins, in constant memory.

To keep every score would let memory grow with the data, so scores are counted in many narrow cells of
equal width instead, 65,536 unless told. Scores in one cell count as ties. What that costs is known: see
`auc_error`. The exact answers for data that fits in memory are `auc` and `ece(equal_mass=True)`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import MetricError

from .accumulator import UNIT_BITS, Accumulator, units
from .auc import area, pairs
from .calibration import Reliability, bin_of, equal_width_edges, sum_by_bin
from .checks import SCORE_MESSAGES, check_labels, check_positive, score_faults


class ScoreHistogram(Accumulator):
    """Scores between 0 and 1 and their binary labels, by cell: for the AUC the probability of label 1 and
    the label; for calibration the confidence and whether the prediction was right."""

    def __init__(self, *, cells: int = 1 << 16) -> None:
        check_positive("cells", cells)
        self.cells = cells
        super().__init__({"cells": cells}, dict.fromkeys(("examples", "positives", "scores"), cells), SCORE_MESSAGES)

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add [n] scores and [n] labels (0 and 1, or booleans)."""
        if scores.dim() != 1 or not scores.is_floating_point():
            raise MetricError(f"scores have shape {tuple(scores.shape)} and {scores.dtype}; give [n] floating point")
        check_labels(labels, scores)
        with torch.no_grad():
            labels = labels.long()
            faults = score_faults(scores, labels)
            wide = scores.double().nan_to_num(0.0).clamp(0, 1)
            which = bin_of(wide, equal_width_edges(self.cells, wide.device))
            self._add(
                len(labels),
                faults,
                {
                    "examples": sum_by_bin(torch.ones_like(which), which, self.cells),
                    "positives": sum_by_bin(labels, which, self.cells),
                    "scores": sum_by_bin(units(wide), which, self.cells),
                },
            )

    def auc(self) -> float:
        """The area under the ROC curve, scores in one cell counting as ties; within `auc_error` of the exact one."""
        examples, positives, _ = self._seen().values()
        return area(positives, examples - positives)

    def auc_error(self) -> float:
        """How far `auc` can be from the exact one: half the share of pairs whose order lies inside a cell."""
        examples, positives, _ = self._seen().values()
        negatives = examples - positives
        return int((positives * negatives).sum()) / (2 * pairs(positives, negatives))

    def reliability(self, *, bins: int = 10) -> Reliability:
        """The reliability diagram over bins of equal mass, with edges at borders of cells."""
        check_positive("bins", bins)
        examples, positives, scores = self._seen().values()
        wanted = (torch.arange(1, bins) * self.count + bins - 1) // bins
        last_cells = torch.searchsorted(examples.cumsum(0), wanted)
        which = torch.searchsorted(last_cells, torch.arange(self.cells))
        count, right, sums = (sum_by_bin(values, which, bins) for values in (examples, positives, scores))
        borders = equal_width_edges(self.cells)
        edges = torch.cat((borders[:1], borders[last_cells + 1], borders[-1:]))
        return Reliability(edges, count, sums.double() / (1 << UNIT_BITS) / count, right.double() / count)

    def ece(self, *, bins: int = 10) -> float:
        """The expected calibration error over `reliability`'s bins."""
        return float(self.reliability(bins=bins).ece)
