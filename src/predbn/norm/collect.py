"""Passes over unlabelled data that measure population statistics and calibrations.

During such a pass the strategy is replaced by a collector, a strategy that stores what it sees. Only the batch norm
layers are affected: the model stays in `.eval()` mode, so dropout stays off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError, Progress

from .adapted_layer import DEFAULT_STREAM, Adaptation
from .calibration import CalibrationAccumulator
from .layers import device_of
from .observation import Observation
from .statistics import Moments, Statistics, pool
from .strategies import Strategy
from .strategies.base import load_statistics, save_statistics


class _StopPass(Exception):
    """Ends a pass early, because the remaining layers are not needed."""


@dataclass(frozen=True)
class _PoolAllLayers(Strategy):
    """Each batch is normalised with its own statistics, and the moments of every layer are pooled.

    `calls` counts how often each layer was called, in the order of the first calls.
    """

    pooled: dict[str, Moments] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def statistics(self, observation: Observation) -> Statistics:
        layer, batch = observation.layer, observation.moments(allow_single_value=True)
        self.calls[layer] = self.calls.get(layer, 0) + 1
        self.pooled[layer] = pool(self.pooled[layer], batch) if layer in self.pooled else batch
        return batch.statistics if batch.values > 1 else self.pooled[layer].statistics


class _PoolOneLayer(Strategy):
    """The moments of one layer are pooled. Earlier layers use their final statistics, later ones are not run."""

    def __init__(self, layer: str, calls_per_pass: int) -> None:
        self.layer = layer
        self.calls_per_pass = calls_per_pass
        self.calls = 0
        self.pooled: Moments | None = None

    def statistics(self, observation: Observation) -> Statistics:
        if observation.layer != self.layer:
            return load_statistics(observation.state) or observation.moments(allow_single_value=True).statistics
        batch = observation.moments(allow_single_value=True)
        self.pooled = batch if self.pooled is None else pool(self.pooled, batch)
        self.calls += 1
        if self.calls % self.calls_per_pass == 0:
            raise _StopPass
        return batch.statistics


@dataclass(frozen=True)
class _CollectCalibration(Strategy):
    """The source statistics are used, and the moments of every example are accumulated.

    The class of an example is known only at the end of the pass; until then its moments are stored in `current_pass`.
    """

    accumulators: dict[str, CalibrationAccumulator] = field(default_factory=dict)
    current_pass: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)

    def statistics(self, observation: Observation) -> Statistics:
        accumulator = self.accumulators.setdefault(observation.layer, CalibrationAccumulator())
        mean, square = observation.example_moments()
        accumulator.update(mean, square)
        self.current_pass.append((observation.layer, mean, square))
        return observation.source or observation.moments(allow_single_value=True).statistics

    def end_pass(self, output: Any) -> None:
        """Use the classes that the model predicted, if its output is logits."""
        if isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] > 1:
            classes = output.argmax(1)
            for layer, mean, square in self.current_pass:
                if len(mean) == len(classes):
                    self.accumulators[layer].update_classes(mean, square, classes)
        self.current_pass.clear()


def collect_population(
    model: nn.Module, adaptation: Adaptation, loader: Iterable[Any], *, exact: bool, progress: Progress | None = None
) -> None:
    """Fill the states of the layers with the statistics of the whole data (see `Population`).

    An iterator that is needed more than once is kept in memory.
    """
    batches = list(loader) if exact and isinstance(loader, Iterator) else loader
    collector = _PoolAllLayers()
    with _collecting(model, adaptation, collector):
        # The exact method needs only the layers' order here, which one batch gives.
        for x in islice(_inputs(model, batches), 1 if exact else None):
            model(x)
    if not collector.pooled:
        raise AdaptationError("the loader gave no batch; 'population' needs unlabelled data to take statistics from")
    stream = adaptation.streams[DEFAULT_STREAM]
    if not exact:
        for layer, moments in collector.pooled.items():
            save_statistics(stream.state(layer), moments.statistics)
        return
    for done, (layer, calls) in enumerate(collector.calls.items(), start=1):
        moments = _pool_one_layer(model, adaptation, batches, layer, calls)
        save_statistics(stream.state(layer), moments.statistics)
        if progress is not None:
            progress(done, len(collector.calls))


def _pool_one_layer(
    model: nn.Module, adaptation: Adaptation, batches: Iterable[Any], layer: str, calls: int
) -> Moments:
    collector = _PoolOneLayer(layer, calls)
    with _collecting(model, adaptation, collector):
        for x in _inputs(model, batches):
            try:
                model(x)
            except _StopPass:
                continue
    assert collector.pooled is not None
    return collector.pooled


def collect_calibration(
    model: nn.Module, adaptation: Adaptation, loader: Iterable[Any]
) -> dict[str, CalibrationAccumulator]:
    """The moments of every example of the loader, accumulated per layer."""
    collector = _CollectCalibration()
    with _collecting(model, adaptation, collector):
        for x in _inputs(model, loader):
            collector.end_pass(model(x))
    if not collector.accumulators:
        raise AdaptationError("the loader gave no batch; calibration needs unlabelled source data")
    return collector.accumulators


@contextmanager
def _collecting(model: nn.Module, adaptation: Adaptation, collector: Strategy) -> Iterator[None]:
    """Use a collector as the strategy, in `.eval()` mode, eagerly and without gradients."""
    strategy = adaptation.strategy
    adaptation.strategy = collector
    try:
        with evaluating(model):
            yield
    finally:
        adaptation.strategy = strategy


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Predict in `.eval()` mode, eagerly and without gradients; afterwards each module has the mode it had before."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, training in modes:
            module.training = training


def input_of(batch: Any) -> Any:
    """The input of a model in a batch of a loader: the batch itself, or its first part if it is a tuple or a list."""
    return batch[0] if isinstance(batch, tuple | list) else batch


def _inputs(model: nn.Module, loader: Iterable[Any]) -> Iterator[Tensor]:
    """The inputs of a loader, on the model's device."""
    device = device_of(model)
    for batch in loader:
        x = input_of(batch)
        if not isinstance(x, Tensor):
            raise AdaptationError(
                f"the loader gave a {type(x).__name__}; give tensors, or tuples that begin with one (wrap the loader "
                "in a generator that picks the input out)"
            )
        yield x if device is None else x.to(device)
