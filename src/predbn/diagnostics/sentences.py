"""A diagnosis in words. Everything follows from unlabelled data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .diagnosis import has_shifted, mean_or_zero, recovered_share

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, Shift

MIN_SHARE_OF_LAYERS = 0.1
"""The data has shifted if more than this share of the layers has."""
SMALL_BATCH = 32
LAYERS_NAMED = 3
RECOVERY = (
    (0.8, "brings it back"),
    (0.5, "brings most of it back"),
    (0.2, "brings some of it back"),
    (-0.05, "hardly brings it back"),
)


def sentences(diagnosis: Diagnosis) -> list[str]:
    """Whether the data has shifted, in which layers, and whether the strategy undoes it; the most important first."""
    layers = diagnosis.of("train", kind="batch norm")
    rows = layers or diagnosis.of("train")
    shifted = [row for row in rows if has_shifted(row)]
    is_shifted = _is_enough(shifted, rows)
    result = [_whether_shifted(rows, shifted, "batch norm layer" if layers else "output")]
    if is_shifted and layers:
        result.append(_where(layers, shifted))
    if diagnosis.after is not None and layers:
        on_reference, on_shifted = (
            diagnosis.of(diagnosis.strategy, data=data, kind="batch norm") for data in ("reference", "shifted")
        )
        name = "Prediction-time BN" if diagnosis.strategy == "batch" else f"The strategy {diagnosis.strategy}"
        result += [
            _recovery(name, layers, on_shifted, is_shifted),
            _embeddings(diagnosis),
            _effect_on_reference(name, on_reference),
        ]
    result += [_confidence(diagnosis), _limits(diagnosis)]
    return [sentence for sentence in result if sentence]


def _is_enough(shifted: Sequence[Shift], rows: Sequence[Shift]) -> bool:
    return len(shifted) > MIN_SHARE_OF_LAYERS * len(rows)


def _whether_shifted(rows: Sequence[Shift], shifted: Sequence[Shift], kind: str) -> str:
    distance, noise = mean_or_zero([row.distance for row in rows]), mean_or_zero([row.noise for row in rows])
    measured = f"{distance:.2f} standard deviations on average, while chance alone would give {noise:.2f}"
    counted = f"{len(shifted)} of {len(rows)} {kind}s"
    if _is_enough(shifted, rows):
        return f"The data has shifted: {counted} moved away from the reference, by {measured}."
    few = f"only {counted}" if shifted else f"none of the {len(rows)} {kind}s"
    return f"No shift worth the name: {few} moved away from the reference ({measured})."


def _where(layers: Sequence[Shift], shifted: Sequence[Shift]) -> str:
    largest = sorted(shifted, key=lambda row: -row.distance)[:LAYERS_NAMED]
    named = _listed([f"{row.layer} ({row.distance:.2f})" for row in largest])
    first = shifted[0]
    place = "at the very first layer" if first is layers[0] else f"at {first.layer}, layer {first.depth}"
    return f"It moved most in {named}; going through the network, it first shows {place}."


def _recovery(name: str, before: Sequence[Shift], after: Sequence[Shift], is_shifted: bool) -> str:
    start, end = (mean_or_zero([row.apart for row in rows]) for rows in (before, after))
    outside_before, outside_after = (mean_or_zero([row.outside for row in rows]) for rows in (before, after))
    numbers = (
        f"normalised in the same way, the data and the reference are {end:.2f} instead of {start:.2f} standard "
        "deviations apart, and the share of values outside the reference's range goes from "
        f"{outside_before:.1%} to {outside_after:.1%}"
    )
    if not is_shifted:
        return f"{name} has nothing to bring back here: {numbers}."
    share = recovered_share(before, after)
    verb = next((verb for least, verb in RECOVERY if share >= least), "does not bring it back but makes it worse")
    part = f" ({share:.0%} of the way)" if share > 0 else ""
    return f"{name} {verb}{part}: {numbers}."


def _effect_on_reference(name: str, rows: Sequence[Shift]) -> str:
    """What the strategy does to data that has not shifted; empty if that is little."""
    if not _is_enough([row for row in rows if has_shifted(row)], rows):
        return ""
    return (
        f"{name} moves even the reference, by {mean_or_zero([row.distance for row in rows]):.2f} standard deviations: "
        "the stored statistics are not those of the reference data (perhaps the training images were augmented, or the "
        "model was not trained on the reference), so it may cost accuracy on data that has not shifted."
    )


def _embeddings(diagnosis: Diagnosis) -> str:
    sides = [diagnosis.of(strategy, kind="embeddings") for strategy in ("train", diagnosis.strategy)]
    if not all(sides):
        return ""
    before, after = (rows[0].divergence for rows in sides)
    return (
        "The divergence of the embeddings, which in the paper goes along with worse predictions, goes from "
        f"{_nats(before)} to {_nats(after)} nats."
    )


def _confidence(diagnosis: Diagnosis) -> str:
    reference, before = diagnosis.reference.confidence, diagnosis.before.confidence
    if reference is None or before is None:
        return ""
    parts = [f"{reference.mean:.1%} on the reference (entropy {reference.entropy:.2f} nats)"]
    parts.append(f"{before.mean:.1%} on the data with the training statistics (entropy {before.entropy:.2f})")
    after = diagnosis.after.confidence if diagnosis.after is not None else None
    if after is not None:
        parts.append(f"{after.mean:.1%} with {diagnosis.strategy} (entropy {after.entropy:.2f})")
    return f"Mean confidence is {_listed(parts)}."


def _limits(diagnosis: Diagnosis) -> str:
    """What these numbers cannot say."""
    if diagnosis.after is None:
        return (
            "The model has no batch norm layer, so there is nothing for prediction-time BN to bring back; only "
            "embeddings and logits were compared."
        )
    if diagnosis.batch_size < SMALL_BATCH and diagnosis.strategy == "batch":
        return (
            f"Batches of {diagnosis.batch_size} give noisy statistics: predict a hundred at once if you can, or try "
            "the strategy prior."
        )
    return ""


def _nats(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _listed(phrases: Sequence[str]) -> str:
    *most, last = phrases
    return f"{', '.join(most)} and {last}" if most else last
