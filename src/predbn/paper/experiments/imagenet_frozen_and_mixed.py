"""I3, figures 6 (bottom) and A9: frozen statistics and mixed shifts on ImageNet-C."""

from __future__ import annotations

from ..imagenet import METHODS, MIXTURES, RESNET50, STATISTICS
from ..series import Series
from .frozen_and_mixed import kept_and_mixed

__all__ = ["EXPERIMENT"]

EXPERIMENT = kept_and_mixed(
    "I3",
    "figures 6 (bottom) and A9",
    "frozen statistics, and several shifts at once, on ImageNet-C",
    heading="Frozen statistics and mixed shifts on ImageNet-C",
    caption="Batches of 500 images. Frozen: the statistics of the first batch of a split are kept for the rest of it. "
    "Mixed: every image of a split has one of 5 or 19 corruptions of one severity; their boxes are over draws.",
    train=Series("train BN", METHODS, "train", network=RESNET50),
    prediction=Series("prediction BN", STATISTICS, "batch", network=RESNET50),
    frozen=Series("frozen prediction BN", STATISTICS, "frozen", network=RESNET50),
    mixtures=MIXTURES,
    network=RESNET50,
)
