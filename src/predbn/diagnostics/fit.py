"""Findings about the stored statistics: do they fit the reference, and if not, why?

The thresholds here and in the files that use them were chosen on the networks of docs/doctor.md, which also says how
far from them every network is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .finding import Finding, format_names
from .measurement import Measurement, distance_from_stored
from .predictions import PredictionPair
from .stored_statistics import RECOMPUTE, has_finite_statistics, is_constant, is_frozen, stored_in
from .training_batches import TrainingBatches, training_batches

TIMES_NOISE = 3.0
"""A distance counts if it is more than three times its sampling noise."""
MAX_DISTANCE = 0.4
"""A layer does not fit beyond so many standard deviations. Healthy networks reach 0.34, because their stored statistics
are those of augmented training images, and broken ones mostly 0.5 and more."""
NOTICEABLE = 0.1
"""If predictions show that something does not fit, these layers take part in it."""
MIN_GAIN = 0.02
"""Predictions are better if they carry at least so many nats more information, and three standard errors."""
MIN_AGREEMENT = 0.9
"""If fewer predictions stay the same with recomputed statistics, those of a layer that does not fit matter."""
COMMON_EPS = (1e-5, 1e-3)
"""The defaults of PyTorch and Keras."""
EPS_EXPLAINS = 0.6
"""Another eps is right if it brings the root mean square distance of the layers below this share."""


def fit_limit(noise: float, limit: float = MAX_DISTANCE) -> float:
    """How far the stored statistics of a layer may be from those of the reference."""
    return max(limit, TIMES_NOISE * noise)


def has_gain(predictions: PredictionPair) -> bool:
    """Whether predictions with recomputed statistics clearly carry more information."""
    if not predictions.count:
        return False
    gain = predictions.gain()
    return gain.mean > max(MIN_GAIN, TIMES_NOISE * gain.error)


def stored_distances(measurement: Measurement, layers: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """How far the stored statistics are from those of the data, and the sampling noise, in the order of the calls.

    Layers whose statistics cannot be compared are left out: not finite, or a variance and an eps of 0.
    """
    distances = {}
    for name, moments in measurement.recomputed.items():
        layer = layers.get(name)
        if layer is not None and has_finite_statistics(layer) and bool((layer.running_var + layer.eps > 0).all()):
            distances[name] = distance_from_stored(moments, stored_in(layer), float(layer.eps))
    return distances


def fit_findings(
    layers: Mapping[str, Any],
    reference: Measurement,
    distances: Mapping[str, tuple[float, float]],
    broken: Collection[str],
) -> Iterator[Finding]:
    """Whether the stored statistics fit the reference, and if not, why.

    `distances` are those of `stored_distances`, and `broken` the layers whose statistics are already known to be wrong.
    If there are any, the predictions say nothing about the others.
    """
    others = {name: layers[name] for name in distances if name not in broken}
    if not others:
        return
    predictions = reference.predictions if not broken else PredictionPair()
    whole = {name: moments.statistics.var for name, moments in reference.recomputed.items()}
    batches = training_batches(whole, reference.variances_in_pairs, others)
    if batches is not None and batches.are_tiny:
        yield _small_batches_finding(batches, tuple(others))
        return
    far = tuple(name for name in _beyond(MAX_DISTANCE, distances, others) if not is_constant(layers[name]))
    # Layers of a frozen class had their stored statistics in training too: their distance alone says nothing.
    if not far and not has_gain(predictions):
        if batches is not None and batches.are_small:
            yield _small_batches_finding(batches, tuple(others))
        return
    eps = _better_eps(others, reference)
    if eps is not None:
        yield _eps_finding(eps, others, predictions)
        return
    far = far or _beyond(NOTICEABLE, distances, others)
    far = far or (max(others, key=lambda name: distances[name][0]),)
    yield _stale_finding(far, layers, distances, predictions)


def _beyond(limit: float, distances: Mapping[str, tuple[float, float]], among: Collection[str]) -> tuple[str, ...]:
    """The layers that are further away than a limit and than sampling noise explains."""
    return tuple(name for name in among if distances[name][0] > fit_limit(distances[name][1], limit))


def _better_eps(layers: Mapping[str, Any], reference: Measurement) -> float | None:
    """The common eps with which the statistics fit much better than with the layers' own; None if there is none."""

    def mean_square(eps: float | None) -> float:
        distances = stored_distances(reference.with_eps(eps), layers)
        return sum(distance**2 for distance, _ in distances.values()) / max(1, len(distances))

    current = {float(layer.eps) for layer in layers.values()}
    squares = {eps: mean_square(eps) for eps in COMMON_EPS if current != {eps}}
    best = min(squares, key=lambda eps: squares[eps])
    return best if squares[best] < EPS_EXPLAINS**2 * mean_square(None) else None


def _small_batches_finding(batches: TrainingBatches, names: tuple[str, ...]) -> Finding:
    sentence = (
        f"The stored variances are those within batches of about {batches.size:.0f} examples, and miss the variance "
        f"between batches (correlation {batches.correlation:.2f} over all channels): the last training ran with such "
        "batches"
    )
    if not batches.are_tiny:
        remedy = f"Compare the accuracy after {RECOMPUTE}; larger batches or SyncBatchNorm in training avoid it."
        return Finding("small batches", "note", names, f"{sentence}.", remedy)
    return Finding(
        "small batches",
        "problem",
        names,
        f"{sentence}, and the statistics are as noisy as they are biased.",
        f"Run {RECOMPUTE}. If the weights were trained from the start with such batches, train on with larger ones, "
        "SyncBatchNorm or frozen batch norm: statistics alone cannot fix that.",
    )


def _eps_finding(eps: float, layers: Mapping[str, Any], predictions: PredictionPair) -> Finding:
    current = sorted({float(layer.eps) for layer in layers.values()})
    stated = f"{current[0]:g}" if len(current) == 1 else f"{current[0]:g} to {current[-1]:g}"
    return Finding(
        "wrong eps",
        "problem",
        tuple(layers),
        f"The model was not trained with eps={stated}: with eps={eps:g} the statistics of the reference are close to "
        f"the stored ones, with eps={stated} they are not{_effect(predictions)}.",
        f"Set eps={eps:g} in every batch norm layer (it is not part of a state dict, so loading the weights does not "
        "set it), or take the value from the training code.",
    )


def _stale_finding(
    far: tuple[str, ...],
    layers: Mapping[str, Any],
    distances: Mapping[str, tuple[float, float]],
    predictions: PredictionPair,
) -> Finding:
    worst = max(far, key=lambda name: distances[name][0])
    if len(far) == 1:
        where = f"{worst} is off by {distances[worst][0]:.2f} standard deviations"
    else:
        where = (
            f"{format_names(far, len(distances))} are off by up to {distances[worst][0]:.2f} standard deviations "
            f"({worst}), and {far[0]}, the first of them in forward order, is the likely origin"
        )
    whose = "The layers are frozen, so they" if all(is_frozen(layers[name]) for name in far) else "They"
    sentence = (
        f"The stored statistics do not fit the weights even on clean data: {where}{_effect(predictions)}. {whose} "
        "belong to other weights (averaged, replaced, trained on) or to other data."
    )
    if not predictions.count or has_gain(predictions) or predictions.agreement < MIN_AGREEMENT:
        return Finding("stale", "problem", far, sentence, f"Run {RECOMPUTE}; predbn.restore(model) undoes it.")
    remedy = "Nothing if the weights were trained with these statistics, as in fine-tuning with batch norm in .eval() "
    return Finding("stale", "note", far, sentence, f"{remedy}mode; otherwise run {RECOMPUTE}.")


def _effect(predictions: PredictionPair) -> str:
    """What recomputed statistics do to the predictions; empty if the output is not class scores."""
    if not predictions.count:
        return ""
    gain = predictions.gain().mean
    more = "more" if gain > 0 else "less"
    return (
        f"; recomputed statistics change {1 - predictions.agreement:.0%} of the predictions, which then carry "
        f"{abs(gain):.2f} nats {more} information"
    )
