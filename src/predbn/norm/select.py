"""Which layers are to be adapted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TypeAlias

from torch import nn

from predbn.common import AdaptationError

from .kinds import named_layers

Layers: TypeAlias = str | Iterable[str] | Callable[[str, nn.Module], bool]


def select(model: nn.Module, layers: Layers) -> list[tuple[str, nn.Module]]:
    """The chosen batch norm layers: "all", "first" or "last" (in the order in which the model registers
    them), one or several name patterns such as "layer4.*", or a predicate of name and layer."""
    every = list(named_layers(model))
    if callable(layers):
        chosen = [(name, layer) for name, layer in every if layers(name, layer)]
        if not chosen:
            raise AdaptationError(f"the predicate given as layers chose none of the {len(every)} batch norm layers")
        return chosen
    if layers == "all":
        return every
    if layers == "first":
        return every[:1]
    if layers == "last":
        return every[-1:]
    patterns = [layers] if isinstance(layers, str) else list(layers)
    if not patterns:
        raise AdaptationError('layers is empty; give "all", "first", "last", name patterns or a predicate')
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in every):
            raise AdaptationError(
                f"no batch norm layer matches '{pattern}'; there are {_listed([n for n, _ in every])}"
            )
    return [(name, layer) for name, layer in every if any(fnmatchcase(name, p) for p in patterns)]


def _listed(names: list[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … and {len(names) - most} more"
