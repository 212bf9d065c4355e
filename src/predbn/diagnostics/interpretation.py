"""From measured statistics to findings: do the stored statistics fit, why not, and has the data shifted?

The thresholds were chosen on the networks of docs/doctor.md, which also says how far from them every network is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .data_statistics import DataStatistics, distance_and_chance
from .examination import LayerFit
from .finding import Finding, listed
from .predictions import Mean
from .stored_statistics import RECOMPUTE, has_finite_statistics, is_constant, is_frozen, stored_in
from .training_batches import TrainingBatches, training_batches

TIMES_CHANCE = 3.0
"""A distance counts if it is more than three times what chance typically gives."""
OFF = 0.4
"""A layer is off by itself beyond so many standard deviations. Healthy networks are off by up to 0.34, because their
stored statistics are those of augmented training images, and those that have gone wrong mostly by 0.5 and more."""
NOTICEABLE = 0.1
"""If predictions tell that something is off, these layers take part in it."""
LEAST_GAIN = 0.02
"""Recomputed statistics are better if they tell at least so many nats more, and three standard errors."""
LEAST_AGREEMENT = 0.9
"""If fewer predictions stay the same with recomputed statistics, those of a layer that is off matter."""
LEAST_LOSS = 0.05
"""Predictions suffer from a shift if they tell less by this share than on the reference, and three standard errors."""
LEAST_SHIFT = 0.05
"""The data has shifted in a layer beyond so many standard deviations: with enough data everything is significant."""
COMMON_EPS = (1e-5, 1e-3)
"""The defaults of PyTorch and Keras."""
EPS_EXPLAINS = 0.6
"""Another eps is right if it brings the mean square distance of the layers below this share, squared."""


def fit_limit(chance: float, least: float = OFF) -> float:
    """How far the stored statistics of a layer may be from those of clean data."""
    return max(least, TIMES_CHANCE * chance)


def shift_limit(chance: float) -> float:
    """How far the statistics of new data may be from those of the reference."""
    return max(LEAST_SHIFT, TIMES_CHANCE * chance)


@dataclass(frozen=True)
class Fit:
    """What was measured on a set of data, and how far the stored statistics are from it in each layer."""

    name: str
    measured: DataStatistics
    distances: Mapping[str, tuple[float, float]]
    """By layer in the order of the calls: the distance and what chance gives."""

    @classmethod
    def of(cls, name: str, measured: DataStatistics, layers: Mapping[str, Any]) -> Fit:
        return cls(name, measured, _distances(measured, layers))

    def beyond(self, least: float) -> tuple[str, ...]:
        """The layers that are further off than this and than chance."""
        return tuple(n for n, (d, chance) in self.distances.items() if d > fit_limit(chance, least))

    def channels(self, name: str, layer: Any) -> tuple[list[float], list[float]]:
        """By how many stored standard deviations each channel's mean is off, and how many times as wide it is."""
        mean, var = self.measured.layers[name].statistics
        stored_mean, stored_var = (t.detach().to(mean) for t in stored_in(layer))
        scale = stored_var.clamp(min=0) + float(layer.eps)
        return ((mean - stored_mean) / scale.sqrt()).tolist(), ((var + float(layer.eps)) / scale).sqrt().tolist()

    @property
    def has_gain(self) -> bool:
        """Whether predictions tell clearly more with recomputed statistics."""
        if not self.measured.predictions.count:
            return False
        gain = self.measured.predictions.gain()
        return gain.mean > max(LEAST_GAIN, TIMES_CHANCE * gain.error)

    @property
    def predictions_suffer(self) -> bool:
        """Whether the predictions depend on what is off; True if they are not known."""
        predictions = self.measured.predictions
        return not predictions.count or self.has_gain or predictions.agreement < LEAST_AGREEMENT


def fit_findings(model: nn.Module, layers: Mapping[str, Any], fit: Fit, known: set[str]) -> Iterator[Finding]:
    """Whether the stored statistics fit the data, and if not, why.

    `known` are the layers whose statistics are already known to be wrong. If there are any, the predictions say nothing
    about the others. Causes are looked for on clean data only: a shift might look like one of them.
    """
    others = {name: layer for name, layer in layers.items() if name in fit.distances and name not in known}
    is_clean = fit.name == "reference"
    batches = _small_batches(others, fit) if is_clean else None
    if batches is not None and batches.are_tiny:
        yield _small_batches_finding(batches, tuple(others))
        return
    # Layers of a frozen class had their stored statistics in training too: that they are off says nothing by itself.
    off = tuple(name for name in fit.beyond(OFF) if name in others and not is_constant(layers[name]))
    if not off and (known or not fit.has_gain):
        if batches is not None:
            yield _small_batches_finding(batches, tuple(others))
        return
    eps = _better_eps(model, others, fit) if is_clean else None
    if eps is not None:
        yield _eps_finding(eps, others, fit)
        return
    off = off or tuple(name for name in fit.beyond(NOTICEABLE) if name in others) or _farthest(fit)
    yield _unfit_finding(off, layers, fit)


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
        f"The data has shifted away from the reference: {_some(shifted, rows)} see other statistics, most of all "
        f"{largest} ({by_layer[largest].shift:.2f} standard deviations), {_beginning(shifted[0], rows)}."
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


def _distances(measured: DataStatistics, layers: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    return {
        name: distance_and_chance(moments, stored_in(layers[name]), float(layers[name].eps))
        for name, moments in measured.layers.items()
        if name in layers and has_finite_statistics(layers[name])
    }


def _small_batches(layers: Mapping[str, Any], fit: Fit) -> TrainingBatches | None:
    by_eps: dict[float, dict[str, Any]] = {}
    for name, layer in layers.items():
        by_eps.setdefault(float(layer.eps), {})[name] = layer
    if not by_eps:
        return None
    eps, most = max(by_eps.items(), key=lambda item: len(item[1]))
    whole = {name: fit.measured.layers[name].statistics.var for name in most}
    stored: dict[str, Tensor] = {name: layer.running_var for name, layer in most.items()}
    found = training_batches(whole, fit.measured.variances_in_pairs, stored, eps)
    return found if found is not None and found.are_small else None


def _better_eps(model: nn.Module, layers: Mapping[str, Any], fit: Fit) -> float | None:
    """The common eps with which the statistics fit much better than with the layers' own; None if there is none."""

    def mean_square(eps: float | None) -> float:
        measured = DataStatistics(model, eps)
        for x in fit.measured.kept:
            measured.update(x)
        distances = _distances(measured, layers)
        return sum(d * d for d, _ in distances.values()) / max(1, len(distances))

    current = {float(layer.eps) for layer in layers.values()}
    candidates = [eps for eps in COMMON_EPS if current != {eps} and _matters(eps, layers)]
    if not candidates:
        return None
    found = {eps: mean_square(eps) for eps in candidates}
    best = min(found, key=lambda eps: found[eps])
    return best if found[best] < EPS_EXPLAINS**2 * mean_square(None) else None


def _matters(eps: float, layers: Mapping[str, Any]) -> bool:
    """Whether another eps changes the scale of any layer's output by a tenth or more."""
    for layer in layers.values():
        ratio = (layer.running_var.double() + eps) / (layer.running_var.double() + float(layer.eps))
        if float(ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log().abs().mean()) > 0.2:
            return True
    return False


def _small_batches_finding(found: TrainingBatches, names: tuple[str, ...]) -> Finding:
    sentence = (
        f"The stored variances are those within batches of about {found.size:.0f} examples, and miss what lies between "
        f"batches (correlation {found.correlation:.2f} over all channels): the last training ran with such batches"
    )
    if not found.are_tiny:
        remedy = f"Compare the accuracy after {RECOMPUTE}; larger batches or SyncBatchNorm in training avoid it."
        return Finding("small batches", "note", names, f"{sentence}.", remedy)
    return Finding(
        "small batches",
        "problem",
        names,
        f"{sentence}, and the statistics are as noisy as they are biased.",
        f"Run {RECOMPUTE}. If the weights were trained from the start with such batches, train on with larger ones, "
        "SyncBatchNorm or frozen batch norm: statistics alone cannot mend that.",
    )


def _eps_finding(eps: float, layers: Mapping[str, Any], fit: Fit) -> Finding:
    own = sorted({float(layer.eps) for layer in layers.values()})
    stated = f"{own[0]:g}" if len(own) == 1 else f"{own[0]:g} to {own[-1]:g}"
    return Finding(
        "wrong eps",
        "problem",
        tuple(layers),
        f"The model was not trained with eps={stated}: with eps={eps:g} the statistics of the {fit.name} are close to "
        f"the stored ones, with its own they are not{_effect(fit)}.",
        f"Set eps={eps:g} in every batch norm layer (it is not part of a state dict, so loading the weights does not "
        "set it), or take the value from the training code.",
    )


def _unfit_finding(off: tuple[str, ...], layers: Mapping[str, Any], fit: Fit) -> Finding:
    worst = max(off, key=lambda name: fit.distances[name][0])
    if len(off) == 1:
        where = f"{worst} is off by {fit.distances[worst][0]:.2f} standard deviations"
    else:
        where = (
            f"{listed(off, len(fit.distances))} are off by up to {fit.distances[worst][0]:.2f} standard deviations "
            f"({worst}), and {off[0]}, the first of them in forward order, is the likely origin"
        )
    where += _effect(fit)
    if fit.name == "data":
        return Finding(
            "unfit",
            "problem",
            off,
            f"The stored statistics do not fit this data: {where}.",
            "Give clean data as the reference too: only then can stale statistics be told from shifted data.",
        )
    whose = "The layers are frozen, so they" if all(is_frozen(layers[name]) for name in off) else "They"
    sentence = (
        f"The stored statistics do not fit the weights even on clean data: {where}. {whose} belong to other weights "
        "(averaged, replaced, trained on) or to other data."
    )
    if fit.predictions_suffer:
        return Finding("stale", "problem", off, sentence, f"Run {RECOMPUTE}; predbn.restore(model) undoes it.")
    return Finding(
        "stale",
        "note",
        off,
        sentence,
        "Nothing if the weights were trained with these statistics, as in fine-tuning with batch norm in .eval() mode; "
        f"otherwise run {RECOMPUTE}.",
    )


def _effect(fit: Fit) -> str:
    """What recomputed statistics do to the predictions; empty if the output is not class scores."""
    predictions = fit.measured.predictions
    if not predictions.count:
        return ""
    change = predictions.gain().mean
    more = "more" if change > 0 else "less"
    return (
        f"; recomputed statistics change {1 - predictions.agreement:.0%} of the predictions, which then tell "
        f"{abs(change):.2f} nats {more}"
    )


def _farthest(fit: Fit) -> tuple[str, ...]:
    return (max(fit.distances, key=lambda name: fit.distances[name][0]),)


def _some(names: Sequence[str], rows: Sequence[LayerFit]) -> str:
    return f"{len(names)} of {len(rows)} batch norm layers"


def _beginning(first: str, rows: Sequence[LayerFit]) -> str:
    return "from the very first layer on" if first == rows[0].layer else f"from {first} on"
