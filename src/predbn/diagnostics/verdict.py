"""A diagnosis in words. All of it follows from unlabelled data.

A layer counts as *shifted* where its distance is more than three times what chance would give, and more than a tenth
of a standard deviation. Three times, because the distance of a single channel scatters by about half of its mean, and
the channels of a layer may move together: even then chance reaches three times its mean about once in a thousand.
A tenth, because with enough data everything is significant: a channel that moved by 0.1 standard deviations has no
more than 4 % of its values on the other side of any threshold, which a network hardly feels. The data counts as
shifted where more than a tenth of the layers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, Shift

__all__ = ["is_shifted", "recovered", "sentences", "threshold"]

TIMES_NOISE = 3.0
LEAST_DISTANCE = 0.1
LEAST_SHARE = 0.1
SMALL_BATCH = 32
NAMED = 3


def threshold(row: Shift) -> float:
    """The distance above which a layer counts as shifted."""
    return max(TIMES_NOISE * row.noise, LEAST_DISTANCE)


def is_shifted(row: Shift) -> bool:
    """Whether a layer has moved by more than chance explains and more than a network would hardly feel."""
    return row.distance > threshold(row)


def recovered(before: Sequence[Shift], after: Sequence[Shift]) -> float:
    """Which part of the way back a strategy goes: 1 − (d_after − noise) / (d_before − noise), of means over layers.

    d is the distance between shifted and reference data that are normalised alike (`Shift.apart`). 1 where nothing
    but chance is left, 0 where nothing is gained, negative where the two moved further apart.
    """
    gap = _mean([row.apart - row.noise for row in before])
    left = _mean([row.apart - row.noise for row in after])
    return min(1.0, 1 - left / gap) if gap > 0 else 0.0


def sentences(diagnosis: Diagnosis) -> list[str]:
    """Has the data shifted, in which layers, does the strategy bring it back; the most important first."""
    layers = diagnosis.of("train", kind="batch norm")
    rows = layers or diagnosis.of("train")
    shifted = [row for row in rows if is_shifted(row)]
    has_shifted = len(shifted) > LEAST_SHARE * len(rows)
    found = [_has_shifted(rows, shifted, has_shifted, "batch norm layer" if layers else "output")]
    if has_shifted and layers:
        found.append(_where(layers, shifted))
    if diagnosis.after is not None and layers:
        settled, after = (
            diagnosis.of(diagnosis.strategy, data=data, kind="batch norm") for data in ("reference", "shifted")
        )
        name = "Prediction-time BN" if diagnosis.strategy == "batch" else f"The strategy {diagnosis.strategy}"
        found += [_brought_back(name, layers, after, has_shifted), _embeddings(diagnosis), _offset(name, settled)]
    found += [_confidence(diagnosis), _limits(diagnosis)]
    return [sentence for sentence in found if sentence]


def _has_shifted(rows: Sequence[Shift], shifted: Sequence[Shift], has_shifted: bool, what: str) -> str:
    distance, chance = _mean([row.distance for row in rows]), _mean([row.noise for row in rows])
    measured = f"{distance:.2f} standard deviations on average, where chance alone would give {chance:.2f}"
    counted = f"{len(shifted)} of {len(rows)} {what}s"
    if has_shifted:
        return f"The data has shifted: {counted} moved away from the reference, by {measured}."
    few = f"only {counted}" if shifted else f"none of the {len(rows)} {what}s"
    return f"No shift worth the name: {few} moved away from the reference ({measured})."


def _where(layers: Sequence[Shift], shifted: Sequence[Shift]) -> str:
    most = sorted(shifted, key=lambda row: -row.distance)[:NAMED]
    named = _listed([f"{row.layer} ({row.distance:.2f})" for row in most])
    first = shifted[0]
    place = "at the very first layer" if first is layers[0] else f"at {first.layer}, layer {first.depth}"
    return f"It moved most in {named}; going through the network, it first shows {place}."


def _brought_back(name: str, before: Sequence[Shift], after: Sequence[Shift], has_shifted: bool) -> str:
    start, end = _mean([row.apart for row in before]), _mean([row.apart for row in after])
    outside = f"{_mean([row.outside for row in before]):.1%} to {_mean([row.outside for row in after]):.1%}"
    numbers = (
        f"normalised alike, the data and the reference are {end:.2f} instead of {start:.2f} standard deviations apart, "
        f"and the share of values outside the reference's range goes from {outside}"
    )
    if not has_shifted:
        return f"{name} has nothing to bring back here: {numbers}."
    share = recovered(before, after)
    words = (
        (0.8, "brings it back"),
        (0.5, "brings most of it back"),
        (0.2, "brings some of it back"),
        (-0.05, "hardly brings it back"),
    )
    verb = next((word for least, word in words if share >= least), "does not bring it back but makes it worse")
    part = f" ({share:.0%} of the way)" if share > 0 else ""
    return f"{name} {verb}{part}: {numbers}."


def _offset(name: str, settled: Sequence[Shift]) -> str:
    """What the strategy does to data that has not shifted."""
    if sum(map(is_shifted, settled)) <= LEAST_SHARE * len(settled):
        return ""
    return (
        f"{name} moves even the reference, by {_mean([row.distance for row in settled]):.2f} standard deviations: the "
        "stored statistics are not those of the reference data (perhaps the training images were augmented, or the "
        "reference is not what the model was trained on), so that it may cost something where nothing has shifted."
    )


def _embeddings(diagnosis: Diagnosis) -> str:
    sides = [diagnosis.of(strategy, kind="embeddings") for strategy in ("train", diagnosis.strategy)]
    if not all(sides):
        return ""
    before, after = (rows[0].divergence for rows in sides)
    return (
        "The divergence of the embeddings, which the paper finds to go with worse predictions, goes from "
        f"{_nats(before)} to {_nats(after)} nats."
    )


def _confidence(diagnosis: Diagnosis) -> str:
    known, before = diagnosis.reference.confidence, diagnosis.before.confidence
    if known is None or before is None:
        return ""
    parts = [f"{known.mean:.1%} on the reference (entropy {known.entropy:.2f} nats)"]
    parts.append(f"{before.mean:.1%} on the data with the training statistics (entropy {before.entropy:.2f})")
    after = diagnosis.after.confidence if diagnosis.after is not None else None
    if after is not None:
        parts.append(f"{after.mean:.1%} with {diagnosis.strategy} (entropy {after.entropy:.2f})")
    return f"Mean confidence is {_listed(parts)}."


def _limits(diagnosis: Diagnosis) -> str:
    """What these numbers cannot say."""
    if diagnosis.after is None:
        return (
            "The model has no batch norm layer, so that there is nothing for prediction-time BN to bring back; only "
            "embeddings and logits were compared."
        )
    if diagnosis.batch_size < SMALL_BATCH and diagnosis.strategy == "batch":
        return (
            f"Batches of {diagnosis.batch_size} give noisy statistics: predict a hundred at once if you can, or try "
            "the strategy prior."
        )
    return ""


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _nats(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _listed(phrases: Sequence[str]) -> str:
    *most, last = phrases
    return f"{', '.join(most)} and {last}" if most else last
