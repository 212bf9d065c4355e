"""Findings about new data: has it shifted away from the reference, where, and do predictions suffer from that?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .examination import LayerExamination
from .finding import Finding
from .fit import TIMES_NOISE, has_gain
from .predictions import Mean, PredictionPair

MIN_SHIFT = 0.05
"""The data has shifted in a layer beyond so many standard deviations: with enough data everything is significant."""
MIN_LOSS = 0.05
"""Predictions suffer from a shift if they carry less information by this share, and three standard errors."""
MIN_ONE_CLASS = 0.95
"""With this share of the predictions in one class, they have probably collapsed."""


def shift_limit(noise: float) -> float:
    """How far the statistics of new data may be from those of the reference."""
    return max(MIN_SHIFT, TIMES_NOISE * noise)


def shift_findings(
    rows: Sequence[LayerExamination], reference: PredictionPair, data: PredictionPair, *, is_broken: bool
) -> Iterator[Finding]:
    """Whether the data differs from the reference, and whether that matters.

    If the stored statistics are wrong (`is_broken`), the predictions say nothing, and advice has to wait.
    """
    shifted = [row for row in rows if row.has_shifted]
    if shifted:
        names, sentence = tuple(row.layer for row in shifted), _shift_sentence(shifted, rows)
        if is_broken:
            remedy = "Fix the stored statistics first, then examine the model again to see whether the shift matters."
            yield Finding("shifted", "note", names, sentence, remedy)
        elif effect := _effect(reference, data):
            yield Finding("shifted", "problem", names, f"{sentence} {effect}", f"Use {_remedy(reference, data)}")
        elif _has_few_classes(reference, data):
            remedy = (
                "Predictions of few classes do not show whether they suffer. If the data holds all classes, they have "
                f"collapsed: use {_remedy(reference, data)}"
            )
            yield Finding("shifted", "note", names, sentence, remedy)
        else:
            remedy = (
                "Judged without labels, the predictions do not suffer from it, so nothing has to be done; with labels, "
                "predbn evaluate --reference measures whether a strategy helps."
            )
            yield Finding("shifted", "note", names, sentence, remedy)
    if not is_broken and _has_few_classes(reference, data):
        yield _few_classes_finding(reference, data)


def _few_classes_finding(reference: PredictionPair, data: PredictionPair) -> Finding:
    number, share = data.most_predicted()
    is_one = share >= MIN_ONE_CLASS
    predicted = f"class {number} in {share:.0%} of the cases" if is_one else f"about {data.class_count():.1f} classes"
    return Finding(
        "one class predicted" if is_one else "few classes",
        "problem" if is_one else "note",
        (),
        f"The predictions on the data are of {predicted}, those on the reference of {reference.class_count():.1f} "
        "classes: either the data really holds so few, which alone changes the statistics, or the predictions have "
        "collapsed.",
        'If it holds so few, do not use "batch" or "ema": predbn.AutoPredictor(model) tells classes from a shift.',
    )


def _shift_sentence(shifted: Sequence[LayerExamination], rows: Sequence[LayerExamination]) -> str:
    largest = max(shifted, key=lambda row: row.shift or 0)
    where = "from the very first layer on" if shifted[0] is rows[0] else f"from {shifted[0].layer} on"
    sentence = (
        f"The data has shifted away from the reference: {len(shifted)} of {len(rows)} batch norm layers see other "
        f"statistics, most of all {largest.layer} ({largest.shift:.2f} standard deviations), {where}."
    )
    # What the first layer sees does not depend on statistics.
    pairs = [(r.shift, r.shift_recomputed) for r in rows[1:] if r.shift is not None and r.shift_recomputed is not None]
    if pairs:
        before, after = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
        sentence += (
            f" Behind the first layer the distance is {before:.2f} on average, and {after:.2f} if every layer "
            "normalises with the statistics of the batch."
        )
    return sentence


def _remedy(reference: PredictionPair, data: PredictionPair) -> str:
    remedy = (
        "the statistics of the data: predbn.calibrate(model, loader), with batches of the reference, then "
        'predbn.adapt(model, "auto")'
    )
    if _has_few_classes(reference, data):
        return f"{remedy}."
    return f'{remedy}; or "prior" for small batches and "batch" for large ones with all classes.'


def _has_few_classes(reference: PredictionPair, data: PredictionPair) -> bool:
    return bool(reference.count and data.count) and data.class_count() < reference.class_count() / 2


def _effect(reference: PredictionPair, data: PredictionPair) -> str:
    """What the shift does to the predictions with the stored statistics, if they clearly suffer; otherwise empty."""
    if not (reference.count and data.count):
        return "What it does to the output is unknown, because that is not one row of class scores per example."
    # Predictions of few classes carry little information even if every one is right; then only entropy says anything.
    if _has_few_classes(reference, data):
        loss, error = _difference(data.entropy(), reference.entropy())
        effect = f"The entropy of the predictions on it is {loss:.2f} nats higher than on the reference."
    else:
        loss, error = _difference(reference.information(), data.information())
        effect = f"Predictions on it carry {loss:.2f} nats less information than those on the reference."
        if has_gain(data):
            return f"With statistics of its own, predictions on it carry {data.gain().mean:.2f} nats more information."
    return effect if loss > max(MIN_LOSS * reference.information().mean, TIMES_NOISE * error) else ""


def _difference(a: Mean, b: Mean) -> tuple[float, float]:
    """a − b with its standard error."""
    return a.mean - b.mean, math.hypot(a.error, b.error)
