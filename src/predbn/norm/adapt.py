"""Adapt a model, restore it, or adapt it for the length of a block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import nn

from predbn.common import AdaptationError

from .calibration import Calibration
from .collect import Progress, collect_population
from .kinds import check_model, named_layers
from .layer import Adaptation, Slot, fit, slot_of
from .select import Layers, select
from .strategies import Population, Strategy, find

M = TypeVar("M", bound=nn.Module)


def adapt(
    model: M,
    strategy: str | Strategy = "batch",
    *,
    layers: Layers = "all",
    eps: float | None = None,
    group: int | None = None,
    sync: bool = False,
    process_group: Any = None,
    loader: Iterable[Any] | None = None,
    progress: Progress | None = None,
    **arguments: Any,
) -> M:
    """Change where the batch norm layers of a model take their statistics from in `.eval()` mode.

    The model is changed in place and returned. Parameters, buffers, state dict, hooks, training mode
    stay as they are, and `restore` gives back the very same model. Adapting an adapted model replaces
    the strategy.

    strategy   "train", "batch", "auto", "auto_stream", "frozen", "ema", "population" or "prior", with its arguments
               (``adapt(model, "prior", N=16)``), or a `Strategy` object
    layers     "all", "first", "last", name patterns ("layer4.*"), or a predicate of name and layer;
               the others keep the source statistics
    eps        in place of the layers' own, at prediction only
    group      for strategies that look at each batch by itself: every `group` examples of what the model is given
               are a batch of their own, so that one pass predicts many small batches, each with its statistics
    sync       take the statistics of the batch over all processes of `process_group`
    loader     for "population": the unlabelled data, batches or (batch, label) pairs
    progress   for "population": called with (layers done, layers in all)
    """
    check_model(model)
    chosen = find(strategy, **arguments)
    if eps is not None and not (isinstance(eps, int | float) and 0 <= eps < math.inf):
        raise AdaptationError(f"eps={eps!r}; it is added to the variance and must be 0 or more")
    if loader is not None and not isinstance(chosen, Population):
        raise AdaptationError(f"strategy '{chosen.name}' takes no loader; only 'population' does")
    if group is not None:
        _check_group(group, chosen, sync)
    selected = select(model, layers)
    before = _slots(model)
    adaptation = Adaptation(chosen, eps, sync, process_group, group, len(selected))
    made = {id(layer): Slot(name, adaptation, _calibration(layer)) for name, layer in selected}
    for layer, _ in before:
        fit(layer, made.get(id(layer)))
    if loader is not None:
        assert isinstance(chosen, Population)
        try:
            collect_population(model, adaptation, loader, exact=chosen.exact, progress=progress)
        except BaseException:
            _put_back(before)
            raise
    return model


def restore(model: M) -> M:
    """Give back the source model: every layer as it was before it was ever adapted."""
    for _, layer in named_layers(model):
        fit(layer, None)
    return model


@contextmanager
def adapted(model: M, strategy: str | Strategy = "batch", **options: Any) -> Iterator[M]:
    """`adapt` for the length of a block; then the model is as it was, adapted or not, whatever happened."""
    before = _slots(model)
    try:
        yield adapt(model, strategy, **options)
    finally:
        _put_back(before)


def _check_group(group: int, strategy: Strategy, sync: bool) -> None:
    if isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise AdaptationError(f"group={group!r}; it is how many examples make up a batch, 1 or more")
    if not strategy.works_in_groups:
        raise AdaptationError(f"strategy '{strategy.name}' takes no group: batches of it are predicted one at a time")
    if sync:
        raise AdaptationError("a group is a part of this process's batch, and sync pools the batches of all: drop one")


def _slots(model: nn.Module) -> list[tuple[nn.Module, Slot | None]]:
    return [(layer, slot_of(layer)) for _, layer in named_layers(model)]


def _put_back(slots: list[tuple[nn.Module, Slot | None]]) -> None:
    for layer, slot in slots:
        fit(layer, slot)


def _calibration(layer: nn.Module) -> Calibration | None:
    slot = slot_of(layer)
    return None if slot is None else slot.calibration
