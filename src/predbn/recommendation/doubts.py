"""Whether the labels can be those of the model: folders in another order than its outputs give numbers all the same."""

from __future__ import annotations

import math

import numpy as np

from predbn.data import CLEAN
from predbn.evaluation import Results

from .real_shift import RealShift

_Z = 1.96
_REMEDY = (
    "Check that the class folders, sorted by name, are the outputs of the model in their order, or say which is which "
    "with --class-map; and check the preprocessing (--mean, --std, --size)."
)


def doubts_about(results: Results) -> list[str]:
    """A sentence if no strategy is above chance on clean data, or anywhere if clean data was not measured.

    None for attacks and clicks.
    """
    frame, data = results.frame, results.card.get("data", {})
    if set(frame["metric"]) & {"auc", "success"} or not {"images", "classes"} <= set(data):
        return []
    rows, where = frame[frame["metric"] == "accuracy"], "with any strategy under these corruptions"
    if (rows["corruption"] == CLEAN).any():
        rows, where = rows[rows["corruption"] == CLEAN], "on clean data"
    best = rows.groupby("model", sort=False)["value"].max()
    for model, accuracy in best.items():
        of_model = f"of {model} {where}" if len(best) > 1 else where
        if doubts := _at_chance(accuracy, data["images"], data["classes"], of_model):
            return doubts
    return []


def doubts_about_reference(shift: RealShift) -> list[str]:
    """A sentence if accuracy on the reference is not above chance, or few of its classes are ever predicted.

    Without labels of the reference, the accuracy of the best strategy on the new data decides.
    """
    classes = max(2, len(shift.classes))
    labels, predicted = shift.labels_and_predictions("reference")
    if labels is None:
        if not shift.is_labelled:
            return []
        best = max(strategy.metrics["accuracy"] for strategy in shift.strategies)
        return _at_chance(best, shift.pictures, classes, "on the new data, with any strategy,")
    if doubts := _at_chance(float(np.mean(labels == predicted)), len(labels), classes, "on the reference"):
        return doubts
    present, covered = len(np.unique(labels)), len(np.unique(predicted))
    if 2 * covered >= present:
        return []
    return [f"Only {covered} of the {present} classes of the reference are ever predicted. {_REMEDY}"]


def _at_chance(accuracy: float, images: int, classes: int, where: str) -> list[str]:
    """A sentence if the 95 % interval (Wilson) of an accuracy begins at 1/classes or below."""
    spread = _Z * math.sqrt(accuracy * (1 - accuracy) / images + _Z**2 / (4 * images**2))
    centre, scale = accuracy + _Z**2 / (2 * images), 1 + _Z**2 / images
    low, high = max(0.0, (centre - spread) / scale), (centre + spread) / scale
    if low > 1 / classes:
        return []
    return [
        f"Do not use these results: accuracy {where} is {100 * accuracy:.1f} % (95 % interval {100 * low:.1f} to "
        f"{100 * high:.1f}), which is not above chance, {100 / classes:.1f} %. {_REMEDY}"
    ]
