"""Adapt a model, restore it, adapt it for the length of a block, calibrate it."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from predbn.common import AdaptationError, Progress

from .adaptation import Adaptation, LayerAdaptation, Observer
from .calibrate import collect_calibration
from .call import ModelCalls, unwatch, watch, watched
from .forward import Forward
from .layer import adaptations, adapted_layers, attach, attached, detach, source_statistics
from .layers import Layers, check_model, is_batch_norm, named_layers, select_layers, unwrapped
from .observation import Observation
from .overwritten import put_back
from .population import collect_population
from .robust import NARROW
from .state import Restorer, owner_of
from .statistics import Statistics
from .strategies import Population, Strategy, Train, find_strategy
from .streams.store import DirectoryStore, StreamStore

M = TypeVar("M", bound=nn.Module)


def adapt(
    model: M,
    strategy: str | Strategy = "batch",
    *,
    layers: Layers = "all",
    eps: float | None = None,
    group: int | None = None,
    batch: str | int | None = None,
    consecutive_rows: bool = False,
    robust: bool | None = None,
    sync: bool = False,
    process_group: Any = None,
    loader: Iterable[Any] | None = None,
    forward: Forward | None = None,
    progress: Progress | None = None,
    max_streams: int | None = None,
    store: StreamStore | str | Path | None = None,
    **arguments: Any,
) -> M:
    """Change where the batch norm layers of a model take their statistics from in `.eval()` mode.

    The model is changed in place and returned. Parameters, buffers, state dict, hooks and training mode stay as they
    are (two hooks are added to `model` itself, see `call.py`), and `restore` gives back the very same model.
    Adapting an adapted model replaces its strategy and keeps its calibration.

    strategy      "train", "batch", "auto", "auto_stream", "frozen", "ema", "population" or "prior", with its arguments
                  (``adapt(model, "prior", N=16)``), or a `Strategy` object
    layers        "all", "first", "last", name patterns ("layer4.*"), or a predicate of name and layer;
                  the other layers keep the source statistics
    eps           replaces the layers' own eps, at prediction only
    group         treat every `group` examples of the input as a batch of their own, so that one pass predicts many
                  small batches, each with its own statistics; only for strategies that look at each batch by itself
    batch         which input of the model holds the examples, by name or position; only needed if inputs have different
                  numbers of rows
    consecutive_rows
                  with `group` or `streams`: layers may see several rows of each example (tokens, windows), which follow
                  each other. Otherwise such layers are refused, as a model may also put copies of its batch in a row
    robust        bound the influence of each example on the statistics of its batch, so that a few outliers cannot
                  spoil it (see `robust.py`); by default for "auto" and "auto_stream" only
    sync          take the statistics of the batch over all processes of `process_group`
    loader        for "population": the unlabelled data, as batches or (batch, label) pairs (see `forward.py`)
    forward       for "population": called as forward(model, batch) to predict a batch, if the default does not fit
    progress      for "population": called with (batches predicted, batches in total; 0 if that is not known)
    max_streams   how many streams are in memory at most, unless more are in use; the least recently used go to `store`
    store         where streams are kept, those of one model with its weights and one strategy: a folder, or an object
                  with the methods of `predbn.norm.StreamStore`. The default stream goes on from there at once
    """
    check_model(model)
    strategy = find_strategy(strategy, **arguments)
    if strategy.pass_count > 1:
        raise AdaptationError(
            f"strategy '{strategy}' makes {strategy.pass_count} passes over a batch, and adapted layers see one; use "
            f"predbn.AutoPredictor(model, passes={strategy.pass_count}), or passes=1"
        )
    if eps is not None:
        if not (isinstance(eps, Real) and 0 <= eps < math.inf):
            raise AdaptationError(f"eps must be a finite number, 0 or more, got {eps!r}")
        eps = float(eps)
    if (loader is not None or forward is not None) and not isinstance(strategy, Population):
        given = "forward" if loader is None else "loader"
        raise AdaptationError(f"strategy '{strategy.name}' takes no {given}; only 'population' does")
    if group is not None:
        _check_group(group, strategy, sync)
    if max_streams is not None:
        _check_max_streams(max_streams, store)
    limit = strategy.bounds if robust is None else (strategy.bounds or NARROW) if robust else None
    selected = select_layers(model, layers)
    shared = Adaptation(
        strategy,
        eps=eps,
        sync=sync,
        process_group=process_group,
        group=group,
        consecutive_rows=consecutive_rows,
        limit=limit,
        layer_count=len(selected),
        max_streams=max_streams,
        store=DirectoryStore(store) if isinstance(store, str | Path) else store,
    )
    before = _Attachments.of(model)
    before.adapted(shared, {layer: name for name, layer in selected}, _batch_input(before.model, batch)).attach()
    try:
        if isinstance(strategy, Population) and loader is not None:
            collect_population(model, shared, loader, exact=strategy.exact, forward=forward, progress=progress)
        if strategy.keeps_state and store is not None:
            shared.streams.use_store(owner_of(model, shared), Restorer(model, shared))
    except BaseException:
        before.attach()
        raise
    if strategy.calibration == "needed" and not any(
        adaptation.calibration for _, _, adaptation in adapted_layers(model)
    ):
        warnings.warn(
            f"the model is not calibrated, so strategy '{strategy.name}' has to guess what clean data looks like, "
            "which costs accuracy; call predbn.calibrate(model, loader) with a few thousand unlabelled "
            "source examples, or give calibrated=False if there are none",
            UserWarning,
            stacklevel=2,
        )
    return model


def restore(model: M, *, keep_calibration: bool | None = None) -> M:
    """Undo `adapt`: every layer is as it was before it was first adapted.

    A model that is not adapted gets back the statistics that it had before `recompute`. So after `recompute`, `adapt`
    and `restore` the recomputed statistics are still there, and a second `restore` undoes them.

    keep_calibration   True keeps what `calibrate` has measured: the model then stays adapted, with strategy "train",
                       which predicts as the original model does. False drops it. By default it is dropped with a
                       warning, because it took a pass over the data.
    """
    adapted_before = adapted_layers(model)
    is_calibrated = any(adaptation.calibration for _, _, adaptation in adapted_before)
    if is_calibrated and keep_calibration:
        return adapt(model, "train")
    if is_calibrated and keep_calibration is None:
        warnings.warn(
            "restore drops the calibration of the model; give keep_calibration=True to keep it, or False to drop it "
            "without this warning",
            UserWarning,
            stacklevel=2,
        )
    unwatch(unwrapped(model))
    for _, layer in named_layers(model):
        detach(layer)
    if not adapted_before:
        put_back(model)
    return model


@contextmanager
def adapted(model: M, strategy: str | Strategy = "batch", **options: Any) -> Iterator[M]:
    """`adapt` for the length of a block. Afterwards the model is as it was before, adapted or not."""
    before = _Attachments.of(model)
    try:
        yield adapt(model, strategy, **options)
    finally:
        before.attach()


def calibrate(model: M, loader: Iterable[Any], *, forward: Forward | None = None) -> M:
    """Measure in one pass over unlabelled source data what each layer looks like when nothing has shifted.

    A few thousand examples are enough, before or after `adapt`. Every layer gets a `Calibration` for the strategies
    that use one; it stays if the strategy is changed and is removed by `restore`. A model that is not adapted becomes
    one that is adapted with "train", which predicts exactly as before. If the pass fails, nothing is changed.

    loader    batches or (batch, label) pairs; `forward.py` has what else they may be
    forward   called as forward(model, batch) to predict a batch, if the default does not fit
    """
    before = _Attachments.of(model)
    if not adapted_layers(model):
        adapt(model, "train")
    try:
        accumulators = collect_calibration(model, adaptations(model), loader, forward)
    except BaseException:
        before.attach()
        raise
    with torch.inference_mode(False), torch.no_grad():  # tensors made in inference mode cannot be used with gradients
        calibrations = {
            adaptation: accumulator.result(adaptation.eps(layer), source_statistics(layer))
            for _, layer, adaptation in adapted_layers(model)
            if (accumulator := accumulators[adaptation.shared].get(adaptation.name)) is not None
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
            self._attachments = _Attachments.of(model)
        if observer is not None:
            self._observe(observer, dict(select_layers(model, observed)))

    def _observe(self, observer: Observer, observed: dict[str, nn.Module]) -> None:
        def observe(observation: Observation, statistics: Statistics) -> None:
            if observation.layer in observed:
                observer(observation, statistics)

        layers = self._attachments.layers
        for _, adaptation in layers:
            if adaptation is not None:
                adaptation.shared.observer = observe
        # Layers that are not adapted normalise as in training; to be observed, they need a strategy that does so.
        train = Adaptation(Train())
        train.observer = observe
        unadapted = {layer: LayerAdaptation(name, train) for name, layer in observed.items()}
        layers = [(layer, adaptation or unadapted.get(layer)) for layer, adaptation in layers]
        self._attachments = self._attachments._replace(layers=layers)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Adapt the model for the length of a block."""
        before = _Attachments.of(self._attachments.model)
        try:
            self._attachments.attach()
            yield
        finally:
            before.attach()


def _check_group(group: int, strategy: Strategy, sync: bool) -> None:
    if isinstance(group, bool) or not isinstance(group, int) or group < 1:
        raise AdaptationError(f"group must be a number of examples, 1 or more, got {group!r}")
    if strategy.keeps_state or not strategy.works_on_segments:
        raise AdaptationError(f"strategy '{strategy.name}' does not support group=")
    if sync:
        raise AdaptationError("group= and sync=True cannot be combined")


def _check_max_streams(max_streams: int, store: object) -> None:
    if isinstance(max_streams, bool) or not isinstance(max_streams, int) or max_streams < 1:
        raise AdaptationError(f"max_streams must be at least 1, got {max_streams!r}")
    if store is None:
        raise AdaptationError("max_streams needs a store for the other streams, such as store='folder'")


def _batch_input(model: nn.Module, batch: str | int | None) -> tuple[int, str] | None:
    """Position and name of the input that holds the examples."""
    if batch is None:
        return None
    names = list(inspect.signature(model.forward).parameters)
    if isinstance(batch, str) and batch in names:
        return names.index(batch), batch
    if isinstance(batch, int) and not isinstance(batch, bool) and 0 <= batch < len(names):
        return batch, names[batch]
    raise AdaptationError(
        f"batch={batch!r} is no input of the model; give the name or position of one of: {', '.join(names)}"
    )


class _Attachments(NamedTuple):
    """What is attached to a model: to its batch norm layers, and to the modules that were given to `adapt`."""

    model: nn.Module
    layers: list[tuple[nn.Module, LayerAdaptation | None]]
    calls: list[tuple[nn.Module, ModelCalls]]

    @classmethod
    def of(cls, model: nn.Module) -> _Attachments:
        model = unwrapped(model)
        layers = [(layer, attached(layer)) for _, layer in named_layers(model)]
        return cls(model, layers, watched(model))

    def adapted(
        self, shared: Adaptation, selected: dict[nn.Module, str], batch: tuple[int, str] | None
    ) -> _Attachments:
        """The selected layers get a new adaptation; other layers that are calibrated predict as before and stay so."""
        unselected = Adaptation(Train())
        layers: list[tuple[nn.Module, LayerAdaptation | None]] = []
        for (name, layer), (_, old) in zip(named_layers(self.model), self.layers, strict=True):
            adaptation = None
            if layer in selected:
                adaptation = LayerAdaptation(selected[layer], shared, None if old is None else old.calibration)
            elif old is not None and old.calibration is not None:
                adaptation = LayerAdaptation(name, unselected, old.calibration)
            layers.append((layer, adaptation))
        # A layer that is adapted by itself sees its examples, and each of its calls is a pass.
        names = [adaptation.name for _, adaptation in layers if adaptation is not None]
        calls = [] if is_batch_norm(self.model) else [(self.model, ModelCalls(shared, names, batch))]
        return _Attachments(self.model, layers, calls)

    def attach(self) -> None:
        unwatch(self.model)
        for layer, adaptation in self.layers:
            attach(layer, adaptation)
        for module, calls in self.calls:
            watch(module, calls)
