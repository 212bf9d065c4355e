"""Findings about new data: has it shifted away from the reference, and do predictions suffer from that?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .examination import LayerFit
from .finding import Finding
from .fit import TIMES_CHANCE, Fit
from .predictions import Mean

LEAST_SHIFT = 0.05
"""The data has shifted in a layer beyond so many standard deviations: with enough data everything is significant."""
LEAST_LOSS = 0.05
"""Predictions suffer from a shift if they tell less by this share than on the reference, and three standard errors."""


def shift_limit(chance: float) -> float:
    """How far the statistics of new data may be from those of the reference."""
    return max(LEAST_SHIFT, TIMES_CHANCE * chance)


def shift_finding(rows: Sequence[LayerFit], reference: Fit, data: Fit, *, are_right: bool) -> Finding | None:
    """Whether the data differs from the reference, whatever the stored statistics are.

    Only if these are right (`are_right`) do the predictions tell whether that matters.
    """
    shifted = tuple(
        row.layer
        for row in rows
        if row.shift is not None and row.shift_chance is not None and row.shift > shift_limit(row.shift_chance)
    )
    if not shifted:
        return None
    by_layer = {row.layer: row for row in rows}
    largest = max(shifted, key=lambda name: by_layer[name].shift or 0)
    sentence = (
        f"The data has shifted away from the reference: {len(shifted)} of {len(rows)} batch norm layers see other "
        f"statistics, most of all {largest} ({by_layer[largest].shift:.2f} standard deviations), "
        f"{_beginning(shifted[0], rows)}."
    )
    if not are_right:
        remedy = "Mend the stored statistics first, and examine again: only then can be seen whether the shift matters."
        return Finding("shifted", "note", shifted, sentence, remedy)
    effect = _effect_of_shift(reference, data)
    if effect:
        return Finding(
            "shifted",
            "problem",
            shifted,
            f"{sentence} {effect}",
            'Use the statistics of the data: predbn.calibrate(model, reference), then predbn.adapt(model, "auto"); or '
            '"prior" for small batches and "batch" for large ones with all classes.',
        )
    return Finding(
        "shifted",
        "note",
        shifted,
        f"{sentence} As far as can be seen without labels, the predictions do not suffer from it.",
        "Nothing has to be done; predbn evaluate measures whether a strategy helps, if you have labels.",
    )


def classes_finding(reference: Fit, data: Fit) -> Finding | None:
    """Whether the data holds much fewer classes than the reference, which also changes statistics."""
    if not _has_few_classes(reference, data):
        return None
    before, after = reference.measured.predictions.classes(), data.measured.predictions.classes()
    return Finding(
        "few classes",
        "note",
        (),
        f"The model predicts about {after:.0f} classes on the data, but {before:.0f} on the reference: if the data "
        "really holds so few, that alone changes the statistics.",
        'Do not use "batch" or "ema" on such data; "auto" knows the difference between classes and a shift.',
    )


def _has_few_classes(reference: Fit, data: Fit) -> bool:
    before, after = reference.measured.predictions, data.measured.predictions
    return bool(before.count and after.count) and after.classes() < before.classes() / 2


def _effect_of_shift(reference: Fit, data: Fit) -> str:
    """What the shift does to the predictions with the stored statistics, if they clearly suffer; otherwise empty."""
    before, after = reference.measured.predictions, data.measured.predictions
    if not (before.count and after.count):
        return "What it does to the output is not known, because that is not one row of class scores per example."
    # Data of few classes has little to tell even if every prediction is right; then only doubt says anything.
    if _has_few_classes(reference, data):
        loss, error = _difference(after.doubt(), before.doubt())
        what = f"The entropy of the predictions on it is {loss:.2f} nats higher than on the reference."
    else:
        loss, error = _difference(before.information(), after.information())
        what = f"Predictions on it tell {loss:.2f} nats less than those on the reference."
        if data.has_gain:
            return f"With statistics of its own, predictions on it tell {after.gain().mean:.2f} nats more."
    return what if loss > max(LEAST_LOSS * before.information().mean, TIMES_CHANCE * error) else ""


def _difference(a: Mean, b: Mean) -> tuple[float, float]:
    """a − b with its standard error."""
    return a.mean - b.mean, math.hypot(a.error, b.error)


def _beginning(first: str, rows: Sequence[LayerFit]) -> str:
    return "from the very first layer on" if first == rows[0].layer else f"from {first} on"
