"""The two series that every experiment comes back to."""

from __future__ import annotations

from ..series import Series

__all__ = ["PREDICTION", "TRAIN"]

TRAIN = Series("train BN", "methods", "train")
PREDICTION = Series("prediction BN", "methods", "batch")
