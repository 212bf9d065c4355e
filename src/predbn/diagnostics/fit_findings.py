"""Findings about the stored statistics: do they fit clean data, and if not, why?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .finding import Finding, listed
from .fit import OFF, Fit, layer_distances
from .stored_statistics import RECOMPUTE, is_constant, is_frozen
from .training_batches import TrainingBatches, training_batches

NOTICEABLE = 0.1
"""If predictions tell that something is off, these layers take part in it."""
COMMON_EPS = (1e-5, 1e-3)
"""The defaults of PyTorch and Keras."""
EPS_EXPLAINS = 0.6
"""Another eps is right if it brings the mean square distance of the layers below this share, squared."""


def fit_findings(model: nn.Module, layers: Mapping[str, Any], fit: Fit, known: set[str]) -> Iterator[Finding]:
    """Whether the stored statistics fit the data, and if not, why.

    `known` are the layers whose statistics are already known to be wrong. If there are any, the predictions say nothing
    about the others. Causes are looked for on clean data only: a shift might look like one of them.
    """
    others = {name: layers[name] for name in fit.distances if name not in known}
    if not others:
        return
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
    off = off or tuple(name for name in fit.beyond(NOTICEABLE) if name in others)
    off = off or (max(others, key=lambda name: fit.distances[name][0]),)
    yield _unfit_finding(off, layers, fit)


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
        distances = layer_distances(fit.measured.with_eps(eps), layers)
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
