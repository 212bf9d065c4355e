"""Adapt a model, restore it, adapt it for the length of a block, calibrate it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from torch import nn

from predbn.common import AdaptationError, Progress

from .adapted_layer import (
    Adaptation,
    LayerAdaptation,
    adapted_layers,
    attach,
    attached,
    detach,
    source_statistics,
)
from .calibration import Calibration
from .collect import collect_calibration, collect_population
from .layers import Layers, check_model, is_batch_norm, named_layers, select_layers, unwrapped
from .model_calls import ModelCalls, watch, watched
from .observation import Observation
from .statistics import Statistics
from .strategies import Population, Strategy, Train, find_strategy
from .streams import adaptations

M = TypeVar("M", bound=nn.Module)

Observer: TypeAlias = Callable[[Observation, Statistics], None]
"""Called with what a strategy saw of a layer's call and the statistics it chose."""


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

    The model is changed in place and returned. Parameters, buffers, state dict, hooks and training mode stay as they
    are, and `restore` gives back the very same model. Adapting an adapted model replaces its strategy.

    strategy   "train", "batch", "auto", "auto_stream", "frozen", "ema", "population" or "prior", with its arguments
               (``adapt(model, "prior", N=16)``), or a `Strategy` object
    layers     "all", "first", "last", name patterns ("layer4.*"), or a predicate of name and layer;
               the other layers keep the source statistics
    eps        replaces the layers' own eps, at prediction only
    group      treat every `group` examples of the input as a batch of their own, so that one pass predicts many small
               batches, each with its own statistics; only for strategies that look at each batch by itself
    sync       take the statistics of the batch over all processes of `process_group`
    loader     for "population": the unlabelled data, as batches or (batch, label) pairs
    progress   for "population": called with (layers done, layers in total)
    """
    check_model(model)
    strategy = find_strategy(strategy, **arguments)
    if eps is not None and not (isinstance(eps, int | float) and 0 <= eps < math.inf):
        raise AdaptationError(f"eps={eps!r}; it is added to the variance and must be 0 or more")
    if loader is not None and not isinstance(strategy, Population):
        raise AdaptationError(f"strategy '{strategy.name}' takes no loader; only 'population' does")
    if group is not None:
        _check_group(group, strategy, sync)
    selected = select_layers(model, layers)
    shared = Adaptation(
        strategy, eps=eps, sync=sync, process_group=process_group, group=group, layer_count=len(selected)
    )
    new = {id(layer): LayerAdaptation(name, shared, _calibration_of(layer)) for name, layer in selected}
    before = _Attached.of(model)
    _Attached(before.model, [(layer, new.get(id(layer))) for layer, _ in before.layers]).attach()
    if isinstance(strategy, Population) and loader is not None:
        try:
            collect_population(model, shared, loader, exact=strategy.exact, progress=progress)
        except BaseException:
            before.attach()
            raise
    return model


def restore(model: M) -> M:
    """Undo `adapt`: every layer is as it was before it was first adapted."""
    for _, layer in named_layers(model):
        detach(layer)
    for module, _ in watched(unwrapped(model)):
        watch(module, None)
    return model


@contextmanager
def adapted(model: M, strategy: str | Strategy = "batch", **options: Any) -> Iterator[M]:
    """`adapt` for the length of a block. Afterwards the model is as it was before, adapted or not."""
    before = _Attached.of(model)
    try:
        yield adapt(model, strategy, **options)
    finally:
        before.attach()


def calibrate(model: M, loader: Iterable[Any]) -> M:
    """Measure in one pass over unlabelled source data what each layer looks like when nothing has shifted.

    A few thousand examples are enough, before or after `adapt`. Every layer gets a `Calibration` for the strategies
    that use one; it stays if the strategy is changed and is removed by `restore`. A model that is not adapted becomes
    one that is adapted with "train", which predicts exactly as before.
    """
    if not adapted_layers(model):
        adapt(model, "train")
    for shared in adaptations(model):
        accumulators = collect_calibration(model, shared, loader)
        calibrations = {
            adaptation: accumulators[adaptation.name].result(adaptation.eps(layer), source_statistics(layer))
            for _, layer, adaptation in adapted_layers(model)
            if adaptation.shared is shared and adaptation.name in accumulators
        }
        network = sum(calibration.network for calibration in calibrations.values())
        for adaptation, calibration in calibrations.items():
            adaptation.calibration = calibration._replace(network=network)
    return model


class PreparedAdaptation:
    """An adaptation of a model that is switched on and off, so that several can take turns on one model.

    Each keeps the state of its own strategy. Outside of the block `active()` the model is exactly as it was before.
    The options are those of `adapt`.

    observer   called after each call of an observed layer
    observed   which layers to observe, as `layers` of `adapt`; layers that are not adapted are observed too
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: str | Strategy,
        *,
        observer: Observer | None = None,
        observed: Layers = "all",
        **options: Any,
    ) -> None:
        with adapted(model, strategy, **options):
            self._attached = _Attached.of(model)
        if observer is not None:
            self._observe(observer, dict(select_layers(model, observed)))

    def _observe(self, observer: Observer, observed: dict[str, nn.Module]) -> None:
        layers = self._attached.layers
        for shared in {adaptation.shared for _, adaptation in layers if adaptation is not None}:
            shared.strategy = _ObservedStrategy(shared.strategy, observer, frozenset(observed))
        # Layers that are not adapted normalise as in training; to be observed, they need a strategy that does so.
        train = Adaptation(_ObservedStrategy(Train(), observer, frozenset(observed)))
        unadapted = {layer: LayerAdaptation(name, train) for name, layer in observed.items()}
        self._attached.layers = [(layer, adaptation or unadapted.get(layer)) for layer, adaptation in layers]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Adapt the model for the length of a block."""
        before = _Attached.of(self._attached.model)
        try:
            self._attached.attach()
            yield
        finally:
            before.attach()


@dataclass(frozen=True)
class _ObservedStrategy(Strategy):
    """Another strategy, with an observer that is called for some of the layers.

    `keeps_state` stays False: the state of a `PreparedAdaptation` is its own already, and needs no streams.
    """

    inner: Strategy
    observer: Observer
    observed: frozenset[str]

    def statistics(self, observation: Observation) -> Statistics:
        statistics = self.inner.statistics(observation)
        if observation.layer in self.observed:
            self.observer(observation, statistics)
        return statistics


def _check_group(group: int, strategy: Strategy, sync: bool) -> None:
    if isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise AdaptationError(f"group={group!r}; it is how many examples make up a batch, 1 or more")
    if not strategy.works_in_groups:
        raise AdaptationError(f"strategy '{strategy.name}' takes no group: its batches are predicted one at a time")
    if sync:
        raise AdaptationError("a group is part of this process's batch, but sync pools the batches of all: drop one")


class _Attached:
    """What is attached to a model: to its batch norm layers, and to the modules that were given to `adapt`."""

    def __init__(self, model: nn.Module, layers: list[tuple[nn.Module, LayerAdaptation | None]]) -> None:
        self.model = model
        self.layers = layers
        names = [adaptation.name for _, adaptation in layers if adaptation is not None]
        # A layer that is adapted by itself sees its examples, and nothing happens around it.
        self.calls = [(model, ModelCalls(names))] if not is_batch_norm(model) else []

    @classmethod
    def of(cls, model: nn.Module) -> _Attached:
        model = unwrapped(model)
        attachments = cls(model, [(layer, attached(layer)) for _, layer in named_layers(model)])
        attachments.calls = watched(model)
        return attachments

    def attach(self) -> None:
        for layer, adaptation in self.layers:
            attach(layer, adaptation)
        for module, _ in watched(self.model):
            watch(module, None)
        for module, calls in self.calls:
            watch(module, calls)


def _calibration_of(layer: nn.Module) -> Calibration | None:
    adaptation = attached(layer)
    return None if adaptation is None else adaptation.calibration
