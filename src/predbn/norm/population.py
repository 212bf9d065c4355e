"""Measure the statistics of a whole data set, layer by layer or in one pass (see `Population`).

The processes of a group each pass over their own data and pool what they have found at the end of a pass. They may
have batches of different sizes, and different numbers of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from predbn.common import AdaptationError, Progress

from .adaptation import Adaptation
from .calibrate import collecting
from .forward import BatchForward, Forward, batches_of
from .layer import adapted_layers
from .layers import tensors_of
from .observation import Observation
from .population_file import Calls, PopulationFile, PopulationProgress
from .processes import in_each_process
from .statistics import Moments, Statistics, pool
from .strategies import Strategy
from .strategies.base import load_statistics, save_statistics
from .streams.state import LayerState

_MAX_REPETITIONS = 100
_TOLERANCE = 1e-6

T = TypeVar("T")


class _StopPass(Exception):
    """Ends a pass early, because the remaining layers are not needed."""


class _Collector(Strategy):
    """A strategy that pools moments, in double precision."""

    def __init__(self) -> None:
        self.pooled: dict[str, Moments] = {}

    def begin_batch(self) -> None:
        """Called before each batch."""

    def end_batch(self) -> None:
        """Called after each batch."""

    def pool(self, observation: Observation) -> Moments:
        """Pool the moments of a batch, and return them. Without a finite example it has none."""
        layer, batch = observation.layer, observation.moments(allow_single_value=True, may_wait=True)
        wide = batch._replace(mean=batch.mean.double(), var=batch.var.double())
        if bool((wide.mean + wide.var).isfinite().all()):
            self.pooled[layer] = pool(self.pooled[layer], wide) if layer in self.pooled else wide
        elif not observation.bad_rows:
            raise AdaptationError(
                f"layer '{layer}' got values that are too large for the variance of {batch.mean.dtype}; predict in a "
                "wider dtype, or check the weights and the data"
            )
        return batch


class _PoolAllLayers(_Collector):
    """Each batch is normalised with its own statistics, and the moments of every layer are pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Calls, None] = {}
        self._current: dict[str, int] = {}

    def begin_batch(self) -> None:
        self._current = {}

    def end_batch(self) -> None:
        self.calls[tuple(self._current.items())] = None

    def statistics(self, observation: Observation) -> Statistics:
        layer, batch = observation.layer, self.pool(observation)
        self._current[layer] = self._current.get(layer, 0) + 1
        return batch.statistics if batch.values > 1 or layer not in self.pooled else self.pooled[layer].statistics


class _PoolOneLayer(_Collector):
    """The moments of one layer are pooled. Earlier layers use their final statistics, later ones are not run.

    `last_call` is the number of the call after which a batch is not followed any further; None if batches differ in
    how often they call the layer. `guess` is what the layer itself uses if its later calls depend on its earlier ones;
    by default each call uses its own statistics.
    """

    def __init__(self, layer: str, last_call: int | None, guess: Statistics | None = None) -> None:
        super().__init__()
        self.layer = layer
        self.last_call = last_call
        self.guess = guess
        self._calls = 0

    def begin_batch(self) -> None:
        self._calls = 0

    def statistics(self, observation: Observation) -> Statistics:
        if observation.layer != self.layer:
            return (
                load_statistics(observation.state)
                or observation.moments(allow_single_value=True, may_wait=True).statistics
            )
        batch = self.pool(observation)
        self._calls += 1
        if self._calls == self.last_call:
            raise _StopPass
        return self.guess or batch.statistics


def collect_population(
    model: nn.Module,
    adaptation: Adaptation,
    loader: Iterable[Any],
    *,
    exact: bool,
    forward: Forward | None = None,
    progress: Progress | None = None,
    checkpoint: PopulationFile | None = None,
) -> int:
    """Fill the states of the layers with the statistics of the whole data (see `Population`).

    An iterable that can be used only once is kept in memory if it is needed more often. Returns the number of batches,
    those of all processes together.
    """
    passes = _Passes(model, adaptation, loader, exact, forward, progress)
    measured = None if checkpoint is None else passes.in_each_process(checkpoint.read)[0]
    if measured is None:
        measured = passes.measure_all_layers()
    if not measured.calls:
        raise AdaptationError("the loader gave no batch; statistics need unlabelled data to be taken from")
    if not any(measured.calls):
        raise AdaptationError(
            "the batches of the loader call none of the selected batch norm layers, so that these have no statistics; "
            "check how the model is called, or select others with layers=…"
        )
    passes.plan(measured)
    stream = adaptation.default_stream
    for layer in _in_order(measured.calls):
        if layer not in measured.layers:
            measured.layers[layer] = passes.measure_layer(layer, measured.calls)
            if checkpoint is not None:
                passes.in_each_process(partial(checkpoint.write, measured))
        state: LayerState = {}
        save_statistics(state, measured.layers[layer])
        stream.set_state(layer, state)
    return measured.batches


class _Passes:
    """Passes over the data, in all processes that measure it together."""

    def __init__(
        self,
        model: nn.Module,
        adaptation: Adaptation,
        loader: Iterable[Any],
        exact: bool,
        forward: Forward | None,
        progress: Progress | None,
    ) -> None:
        self._model = model
        self._adaptation = adaptation
        self._loader = loader
        self._exact = exact
        self._forward = BatchForward(model, forward)
        self._sync = {"sync": adaptation.sync, "process_group": adaptation.process_group}
        self._layers = {own.name: layer for _, layer, own in adapted_layers(model) if own.shared is adaptation}
        self._progress = progress
        self._batches: int | None = None
        self._batches_here = batches_in(loader)
        self._passes_done = 0
        self._passes = 1 + len(self._layers) if exact else 1
        self._reported = 0

    def in_each_process(self, work: Callable[[], T]) -> list[T]:
        """See `processes.py`."""
        return in_each_process(work, **self._sync)

    def measure_all_layers(self) -> PopulationProgress:
        """One pass that tells which layers are called and in which order; if that is all, also their statistics."""
        collector = _PoolAllLayers()
        pooled, batches = self._run(collector)
        calls = dict.fromkeys(chain.from_iterable(self.in_each_process(lambda: list(collector.calls))))
        layers = [] if self._exact else _in_order(list(calls))
        return PopulationProgress(list(calls), batches, {layer: self._statistics(layer, pooled) for layer in layers})

    def plan(self, measured: PopulationProgress) -> None:
        """Go on after these results."""
        self._batches = measured.batches
        self._passes_done = 1 + len(measured.layers)
        self._passes = 1 + len({layer for calls in measured.calls for layer, _ in calls})

    def measure_layer(self, layer: str, calls: Sequence[Calls]) -> Statistics:
        """The statistics of all inputs of a layer.

        If a layer is called again with what its first call made, its inputs depend on the result. Then the pass is
        repeated with the last result until it reproduces itself.
        """
        counts = {count for batch in calls for name, count in batch if name == layer}
        last_call = max(counts) if len(counts) == 1 else None
        guess: Statistics | None = None
        for _ in range(_MAX_REPETITIONS):
            pooled, batches = self._run(_PoolOneLayer(layer, last_call, guess))
            if batches != self._batches:
                raise AdaptationError(
                    f"the loader gave {batches} batches, and {self._batches} when it was first read; exact statistics "
                    "need the same data in every pass: give a list, or something that can be read more than once"
                )
            statistics = self._statistics(layer, pooled)
            if max(counts) == 1 or (guess is not None and _nearly_equal(statistics, guess)):
                break
            guess = statistics
        else:
            warnings.warn(
                f"layer '{layer}' is called several times for a batch, and its statistics still change after "
                f"{_MAX_REPETITIONS} passes; those of the last pass are used",
                UserWarning,
                stacklevel=2,
            )
        self._passes_done += 1
        return statistics

    def _run(self, collector: _Collector) -> tuple[dict[str, Moments], int]:
        """The pooled moments of the layers, and the number of batches, over all processes."""
        parts = self.in_each_process(lambda: self._run_here(collector))
        pooled: dict[str, Moments] = {}
        for part, _ in parts:
            for layer, moments in part.items():
                pooled[layer] = pool(pooled[layer], moments) if layer in pooled else moments
        return pooled, sum(batches for _, batches in parts)

    def _run_here(self, collector: _Collector) -> tuple[dict[str, Moments], int]:
        batches = 0
        if self._exact:
            self._loader = _reusable(self._loader)
        with collecting(self._model, {self._adaptation: collector}):
            for batch in batches_of(self._loader):
                collector.begin_batch()
                with suppress(_StopPass):
                    self._forward(batch)
                collector.end_batch()
                batches += 1
                self._report(batches)
        self._batches_here = batches
        return {layer: m._replace(mean=m.mean.cpu(), var=m.var.cpu()) for layer, m in collector.pooled.items()}, batches

    def _report(self, batches: int) -> None:
        """Report how many batches were predicted, of all passes; 0 in total if that is not known."""
        done = self._passes_done * self._batches_here + batches
        if self._progress is not None and done > self._reported:
            self._reported = done
            self._progress(done, self._passes * self._batches_here)

    def _statistics(self, name: str, pooled: dict[str, Moments]) -> Statistics:
        """In the precision in which the layer normalises, on its device."""
        moments, layer = pooled.get(name), self._layers[name]
        if moments is None:
            raise AdaptationError(
                f"layer '{name}' got no finite value (all are NaN or infinite), so that it has no statistics; check "
                "the weights and the data"
            )
        own = next((t for t in tensors_of(layer) if t.is_floating_point()), torch.empty(()))
        dtype = torch.promote_types(own.dtype, torch.float32)
        return Statistics(moments.mean.to(own.device, dtype), moments.var.to(own.device, dtype))


def batches_in(loader: Iterable[Any]) -> int:
    """How many batches a loader gives; 0 if it does not tell."""
    try:
        return 1 if isinstance(loader, Tensor) else len(loader)  # type: ignore[arg-type]
    except TypeError:
        return 0


def _reusable(loader: Iterable[Any]) -> Iterable[Any]:
    is_reusable = isinstance(loader, Sequence | DataLoader | Tensor) or batches_of(loader) is not batches_of(loader)
    return loader if is_reusable else list(loader)


def _in_order(calls: Sequence[Calls]) -> list[str]:
    """The layers, each after all that any batch calls before it; if batches disagree, as they first appeared."""
    batches = [[layer for layer, _ in batch] for batch in calls]
    sorter: TopologicalSorter[str] = TopologicalSorter({layer: () for batch in batches for layer in batch})
    for batch in batches:
        for earlier, later in pairwise(batch):
            sorter.add(later, earlier)
    try:
        return list(sorter.static_order())
    except CycleError:
        return list(dict.fromkeys(chain.from_iterable(batches)))


def _nearly_equal(a: Statistics, b: Statistics) -> bool:
    """Means are compared to the standard deviation."""
    scale = b.var.clamp(min=_TOLERANCE**2)
    mean_differs = ((a.mean - b.mean) ** 2 > _TOLERANCE**2 * scale).any()
    return not bool(mean_differs | ((a.var - b.var).abs() > _TOLERANCE * scale).any())
