"""How good predictions are: pure functions, and accumulators whose merged results are exact.

The functions take [n, classes] probabilities of any floating dtype and [n] labels, on either device, compute in
float64 and give a float64 scalar tensor. The accumulators, `Scores` above all, see a stream in constant memory.

torchmetrics is the reference of this room's tests and not its foundation: it sums in floating point, so
shards do not add up exactly; its calibration error gives a confidence of exactly 1 a bin of its own; its
AUC keeps every score; and to import it takes longer than to import everything else here.
"""

from predbn.common import MetricError

from .accumulator import Accumulator
from .accuracy import accuracy, ranks
from .auc import auc
from .bootstrap import Interval, bootstrap_difference, bootstrap_mean, bootstrap_ratio
from .calibration import Reliability, bin_of, ece, equal_width_edges, reliability, sum_by_bin
from .histogram import ScoreHistogram
from .mce import ALEXNET_ERRORS, corruption_errors, mce
from .proper import binary, brier, nll
from .scores import Scores

__all__ = [
    "ALEXNET_ERRORS",
    "Accumulator",
    "Interval",
    "MetricError",
    "Reliability",
    "ScoreHistogram",
    "Scores",
    "accuracy",
    "auc",
    "bin_of",
    "binary",
    "bootstrap_difference",
    "bootstrap_mean",
    "bootstrap_ratio",
    "brier",
    "corruption_errors",
    "ece",
    "equal_width_edges",
    "mce",
    "nll",
    "ranks",
    "reliability",
    "sum_by_bin",
]
