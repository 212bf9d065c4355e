"""C4, figures 6 (top) and A8: statistics of one batch kept for all, and batches that mix kinds of shift."""

from __future__ import annotations

from ..series import Series
from .baseline import PREDICTION, TRAIN
from .frozen_and_mixed import kept_and_mixed

__all__ = ["EXPERIMENT"]

EXPERIMENT = kept_and_mixed(
    "C4",
    "figures 6 (top) and A8",
    "frozen statistics, and several shifts at once",
    heading="Frozen statistics and mixed shifts",
    caption="Frozen: the statistics of the first batch of a split are kept for the rest of it. Mixed: every image of a "
    "split has one of 5 or 19 corruptions of one severity; boxes of mixtures are over draws of the mixture.",
    train=TRAIN,
    prediction=PREDICTION,
    frozen=Series("frozen prediction BN", "strategies", "frozen"),
    mixtures="mixtures",
)
