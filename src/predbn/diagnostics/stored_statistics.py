"""Findings about a model without any data: stored statistics and settings of batch norm layers that cannot be right.

Healthy networks have single channels of variance 0 (dead units) and channels whose variance is smaller than eps (up to
a quarter of a layer in EfficientNet-Lite0), and ported weights have a count of 0 batches. So none of these is a problem
by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from predbn.norm import Statistics

from .finding import Finding, Severity, format_names

MAX_VARIANCE = 1e12
"""A variance above this means values beyond a million, of which float32 keeps no fraction."""

RECOMPUTE = "predbn.recompute(model, loader) with data as in training"

Check = Callable[[Any], bool]


def stored_statistics_findings(model: nn.Module, layers: dict[str, Any]) -> Iterator[Finding]:
    """Findings about the stored statistics and the settings of a model's batch norm layers."""

    def findings(code: str, severity: Severity, check: Check, sentence: str, remedy: str) -> Iterator[Finding]:
        """One finding, if any layer fails a check; in the sentence, `{}` stands for these layers."""
        names = tuple(name for name, layer in layers.items() if check(layer))
        if names:
            yield Finding(code, severity, names, sentence.format(format_names(names, len(layers))), remedy)

    yield from findings(
        "weights not finite",
        "problem",
        _has_non_finite_parameters,
        "The weight or bias of {} is not finite: training has diverged, or the file is damaged.",
        "Load an earlier checkpoint; no statistics can fix this.",
    )
    yield from findings(
        "not finite",
        "problem",
        lambda layer: has_statistics(layer) and not has_finite_statistics(layer),
        "The stored statistics of {} are not finite, or have a variance below 0: every prediction in .eval() mode is "
        "wrong.",
        f"Run {RECOMPUTE}; if the cause is a batch with values that are not finite, remove it from the data first.",
    )
    yield from _never_updated({name: layer for name, layer in layers.items() if _is_initial(layer)}, len(layers))
    yield from findings(
        "exploded",
        "problem",
        lambda layer: has_statistics(layer) and bool((layer.running_var > MAX_VARIANCE).any()),
        f"A stored variance is above {MAX_VARIANCE:.0e} in {{}}: training has diverged, or one batch had huge values.",
        f"Run {RECOMPUTE}; if the variances come back, load an earlier checkpoint.",
    )
    yield from findings(
        "no variance",
        "problem",
        lambda layer: has_statistics(layer) and bool((layer.running_var == 0).all()),
        "Every stored variance of {} is 0: the layer has seen constant inputs only, and .eval() divides by √eps.",
        f"Check that data reaches the layer, then run {RECOMPUTE}.",
    )
    yield from findings(
        "eps",
        "note",
        lambda layer: has_statistics(layer) and _is_dominated_by_eps(layer),
        "eps is larger than the stored variance in most channels of {}, so it decides how they are scaled; that is "
        "right only if the model was trained with this eps.",
        "Compare eps with the training code (PyTorch's default is 1e-5, Keras's 1e-3); examine the model with clean "
        "data to see whether it fits.",
    )
    what = "The model is in training mode" if model.training else "The model is in .eval() mode, but not {}"
    yield from findings(
        "train mode",
        "note" if model.training else "problem",
        lambda layer: layer.training and has_statistics(layer),
        f"{what}: predictions depend on their batch, and every batch changes the stored statistics.",
        "Call model.eval() before you predict, after any code that sets layers to training mode.",
    )
    reasons = _reasons(layer for layer in layers.values() if is_frozen(layer) and not _is_initial(layer))
    yield from findings(
        "frozen",
        "note",
        lambda layer: is_frozen(layer) and not _is_initial(layer),
        f"Training does not update the statistics of {{}} ({reasons}): they stay those of the data on which they were "
        "measured.",
        "Nothing if that is intended; examine the model with clean data to see whether they fit it.",
    )
    yield from findings(
        "momentum none",
        "note",
        lambda layer: has_statistics(layer) and getattr(layer, "momentum", 0) is None,
        "The stored statistics of {} average over all batches since they were last reset, also those of earlier "
        "weights (momentum=None).",
        f"Nothing if they were reset after training, as update_bn does; otherwise run {RECOMPUTE}.",
    )
    yield from findings(
        "no statistics",
        "note",
        lambda layer: not has_statistics(layer),
        "There are no stored statistics in {} (track_running_stats=False): every prediction depends on the other "
        "examples of its batch and on how many there are.",
        'Nothing if that is intended; for fixed statistics use predbn.adapt(model, "population", loader=…).',
    )


def has_statistics(layer: Any) -> bool:
    return isinstance(layer.running_mean, Tensor) and isinstance(layer.running_var, Tensor)


def has_finite_statistics(layer: Any) -> bool:
    """Whether there are statistics, and they are finite with no variance below 0."""
    if not has_statistics(layer):
        return False
    mean, var = layer.running_mean, layer.running_var
    return bool((mean.isfinite() & var.isfinite() & (var >= 0)).all())


def stored_in(layer: Any) -> Statistics:
    """The stored statistics of a layer that has some."""
    return Statistics(layer.running_mean, layer.running_var)


def is_constant(layer: Any) -> bool:
    """Whether the layer is of a class that normalises with its stored statistics even in training mode."""
    return "Frozen" in type(layer).__name__


def is_frozen(layer: Any) -> bool:
    """Whether `.eval()` uses stored statistics that training does not update."""
    return has_statistics(layer) and _why_frozen(layer) is not None


def _never_updated(layers: dict[str, Any], total: int) -> Iterator[Finding]:
    if not layers:
        return
    if all(is_frozen(layer) for layer in layers.values()):
        why = f"the layers are frozen ({_reasons(layers.values())}), so training does not update them"
    elif all(getattr(layer, "num_batches_tracked", None) == 0 for layer in layers.values()):
        why = "no batch was ever seen in training mode, or the file that was loaded has no statistics"
    else:
        why = "they were reset, or the file that was loaded has no statistics"
    names = tuple(layers)
    yield Finding(
        "never updated",
        "problem",
        names,
        f"The stored statistics of {format_names(names, total)} are those of a new layer, mean 0 and variance 1: "
        f"{why}.",
        f"If the weights are trained, run {RECOMPUTE}, or load a file that has the running statistics.",
    )


def _is_initial(layer: Any) -> bool:
    """Mean 0 and variance 1 in every channel, as a new layer has them."""
    return has_statistics(layer) and bool((layer.running_mean == 0).all() & (layer.running_var == 1).all())


def _has_non_finite_parameters(layer: Any) -> bool:
    parameters = [t for t in (layer.weight, layer.bias) if isinstance(t, Tensor)]
    return any(not bool(t.isfinite().all()) for t in parameters)


def _is_dominated_by_eps(layer: Any) -> bool:
    share = (layer.running_var < layer.eps).to(torch.float32).mean()
    return bool(share > 0.5) and bool((layer.running_var > 0).any())


def _why_frozen(layer: Any) -> str | None:
    if is_constant(layer):
        return type(layer).__name__
    if not getattr(layer, "track_running_stats", True):
        return "track_running_stats=False"
    return "momentum=0" if getattr(layer, "momentum", None) == 0 else None


def _reasons(layers: Any) -> str:
    return ", ".join(dict.fromkeys(filter(None, map(_why_frozen, layers))))
