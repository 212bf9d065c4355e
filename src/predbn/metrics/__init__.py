"""How good predictions are: pure functions, and accumulators that call them batch by batch.

The functions take [n, classes] probabilities of any floating dtype and [n] labels on the same device, compute in
float64 and return a float64 scalar tensor. The accumulators `Scores` and `ScoreHistogram` see a stream in constant
memory, and their results do not depend on how the stream was divided into batches.

The tests compare with torchmetrics, but the code is not built on it: torchmetrics sums in floating point, so results
depend on the batches; its calibration error gives a confidence of exactly 1 its own bin; its exact AUC keeps every
score; and importing it takes longer than importing everything else here.
"""

from predbn.common import MetricError

from .auc import ScoreHistogram
from .calibration import Reliability, ece, reliability
from .classification import accuracy, brier, nll, ranks
from .intervals import Interval, bootstrap_difference, bootstrap_mean, t_mean, t_ratio
from .mce import ALEXNET_ERRORS, mce
from .own import OwnMetric, own_metrics, register_metric
from .paired import consecutive_groups, paired_ece_interval, paired_interval
from .scores import Scores

__all__ = [
    "ALEXNET_ERRORS",
    "Interval",
    "MetricError",
    "OwnMetric",
    "Reliability",
    "ScoreHistogram",
    "Scores",
    "accuracy",
    "bootstrap_difference",
    "bootstrap_mean",
    "brier",
    "consecutive_groups",
    "ece",
    "mce",
    "nll",
    "own_metrics",
    "paired_ece_interval",
    "paired_interval",
    "ranks",
    "register_metric",
    "reliability",
    "t_mean",
    "t_ratio",
]
