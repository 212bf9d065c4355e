"""What can be seen in a model without any data: statistics and settings of its batch norm layers that cannot be right.

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

from .finding import Finding, listed

EXPLODED = 1e12
"""A variance above this: values beyond a million, of which float32 keeps no fraction."""

RECOMPUTE = "predbn.recompute(model, loader) with data as in training"

Check = Callable[[Any], bool]


def check_stored_statistics(model: nn.Module, layers: dict[str, Any]) -> list[Finding]:
    """Findings about the stored statistics and the settings of a model's batch norm layers, problems first."""
    return sorted(_findings(model, layers), key=lambda finding: not finding.is_problem)


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


def is_initial(layer: Any) -> bool:
    """Mean 0 and variance 1 in every channel, as a new layer has them."""
    return has_statistics(layer) and bool((layer.running_mean == 0).all() & (layer.running_var == 1).all())


def is_constant(layer: Any) -> bool:
    """Whether the layer is of a class that normalises with its stored statistics even in training mode."""
    return "Frozen" in type(layer).__name__


def is_frozen(layer: Any) -> bool:
    """Whether `.eval()` uses stored statistics that training does not update."""
    if not has_statistics(layer):
        return False
    never_updates = is_constant(layer) or not getattr(layer, "track_running_stats", True)
    return never_updates or getattr(layer, "momentum", None) == 0


def _findings(model: nn.Module, layers: dict[str, Any]) -> Iterator[Finding]:
    stored = {name: layer for name, layer in layers.items() if has_statistics(layer)}

    def which(check: Check, among: dict[str, Any] = stored) -> tuple[str, ...]:
        return tuple(name for name, layer in among.items() if check(layer))

    def say(names: tuple[str, ...]) -> str:
        return listed(names, len(layers))

    if names := which(_parameters_not_finite, layers):
        yield Finding(
            "weights not finite",
            "problem",
            names,
            f"The weight or bias of {say(names)} is not finite: training has diverged, or the file is damaged.",
            "Load an earlier checkpoint; no statistics can mend this.",
        )
    if names := which(lambda layer: not has_finite_statistics(layer)):
        yield Finding(
            "not finite",
            "problem",
            names,
            f"The stored statistics of {say(names)} are not finite, or have a variance below 0: every prediction in "
            ".eval() mode is spoilt.",
            f"Run {RECOMPUTE}; if it was a batch with values that are not finite, take that out of the data first.",
        )
    if names := which(is_initial):
        yield _never_updated(names, stored, say(names))
    if names := which(lambda layer: bool((layer.running_var > EXPLODED).any())):
        yield Finding(
            "exploded",
            "problem",
            names,
            f"There is a stored variance above {EXPLODED:.0e} in {say(names)}: training has diverged, or one batch had "
            "huge values.",
            f"Run {RECOMPUTE}; if they come back, load an earlier checkpoint.",
        )
    if names := which(lambda layer: bool((layer.running_var == 0).all())):
        yield Finding(
            "no variance",
            "problem",
            names,
            f"Every stored variance of {say(names)} is 0: the layer has seen constant inputs only, and .eval() divides "
            "by √eps.",
            f"Check that data reaches the layer, then run {RECOMPUTE}.",
        )
    if names := which(_is_dominated_by_eps):
        yield Finding(
            "eps",
            "note",
            names,
            f"eps is larger than the stored variance in most channels of {say(names)}, so it decides how they are "
            "scaled; that is right only if the model was trained with this eps.",
            "Compare eps with the training code (PyTorch's default is 1e-5, Keras's 1e-3); examine the model with "
            "clean data to see whether it fits.",
        )
    yield from _modes(model, layers, say)
    if names := which(lambda layer: is_frozen(layer) and not is_initial(layer)):
        yield Finding(
            "frozen",
            "note",
            names,
            f"Training does not update the statistics of {say(names)} ({_why_frozen([layers[n] for n in names])}): "
            "they stay those of the data on which they were measured.",
            "Nothing if that is meant; examine the model with clean data to see whether they fit it.",
        )
    if names := which(lambda layer: getattr(layer, "momentum", 0) is None):
        yield Finding(
            "momentum none",
            "note",
            names,
            f"The stored statistics of {say(names)} average over all batches since they were last reset, also those of "
            "earlier weights (momentum=None).",
            f"Nothing if they were reset after training, as update_bn does; otherwise run {RECOMPUTE}.",
        )
    if names := which(lambda layer: not has_statistics(layer), layers):
        yield Finding(
            "no statistics",
            "note",
            names,
            f"There are no stored statistics in {say(names)} (track_running_stats=False): every prediction depends on "
            "the other examples of its batch and on how many there are.",
            'Nothing if that is meant; for fixed statistics use predbn.adapt(model, "population", loader=…).',
        )


def _never_updated(names: tuple[str, ...], stored: dict[str, Any], said: str) -> Finding:
    layers = [stored[name] for name in names]
    if all(is_frozen(layer) for layer in layers):
        why = f"the layers are frozen ({_why_frozen(layers)}), so training does not update them"
    elif all(getattr(layer, "num_batches_tracked", None) == 0 for layer in layers):
        why = "no batch was ever seen in training mode, or the file that was loaded has no statistics"
    else:
        why = "they were reset, or the file that was loaded has no statistics"
    return Finding(
        "never updated",
        "problem",
        names,
        f"The stored statistics of {said} are those of a new layer, mean 0 and variance 1: {why}.",
        f"If the weights are trained, run {RECOMPUTE}, or load a file that has the running statistics.",
    )


def _modes(model: nn.Module, layers: dict[str, Any], say: Callable[[tuple[str, ...]], str]) -> Iterator[Finding]:
    names = tuple(name for name, layer in layers.items() if layer.training and has_statistics(layer))
    if names and model.training:
        yield Finding(
            "train mode",
            "note",
            names,
            "The model is in training mode: predictions would use the statistics of their own batch, and would change "
            "the stored ones.",
            "Call model.eval() before you predict.",
        )
    elif names:
        yield Finding(
            "train mode",
            "problem",
            names,
            f"The model is in .eval() mode, but {say(names)} {_is(names)} in training mode: predictions depend on "
            "their batch, and every batch changes the stored statistics.",
            "Call model.eval() once more after whatever set these layers to training mode.",
        )


def _parameters_not_finite(layer: Any) -> bool:
    parameters = [t for t in (layer.weight, layer.bias) if isinstance(t, Tensor)]
    return any(not bool(t.isfinite().all()) for t in parameters)


def _is_dominated_by_eps(layer: Any) -> bool:
    share = (layer.running_var < layer.eps).to(torch.float32).mean()
    return bool(share > 0.5) and bool((layer.running_var > 0).any())


def _why_frozen(layers: list[Any]) -> str:
    reasons = []
    for layer in layers:
        if is_constant(layer):
            reasons.append(type(layer).__name__)
        elif not getattr(layer, "track_running_stats", True):
            reasons.append("track_running_stats=False")
        else:
            reasons.append("momentum=0")
    return ", ".join(dict.fromkeys(reasons))


def _is(names: tuple[str, ...]) -> str:
    return "is" if len(names) == 1 else "are"
