"""Passes over unlabelled data: population statistics and calibration.

While data is being collected the adaptation's strategy is replaced by a collector, a strategy that
takes notes. Nothing but the batch norm layers is touched: the model stays in `.eval()` mode, so
dropout stays off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError

from .calibration import CalibrationAccumulator
from .kinds import device_of
from .layer import HOME, Adaptation
from .observation import Observation
from .statistics import Moments, Statistics, pool
from .strategies import Strategy
from .strategies.state import keep, recall

Progress: TypeAlias = Callable[[int, int], object]


class _Enough(Exception):
    """Ends a pass early: the layers below are not needed."""


@dataclass(frozen=True)
class _PoolAll(Strategy):
    """Every batch passes with its own statistics; each layer's moments are pooled. The order and number
    of calls is noted."""

    pooled: dict[str, Moments] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def statistics(self, observation: Observation) -> Statistics:
        layer, batch = observation.layer, observation.moments(defined=False)
        self.calls[layer] = self.calls.get(layer, 0) + 1
        self.pooled[layer] = pool(self.pooled[layer], batch) if layer in self.pooled else batch
        return batch.statistics if batch.values > 1 else self.pooled[layer].statistics


@dataclass(frozen=True)
class _PoolOne(Strategy):
    """One layer is pooled; those above it pass with their final statistics, those below are not run."""

    layer: str = ""
    calls: int = 1
    pooled: list[Moments] = field(default_factory=list)
    called: list[int] = field(default_factory=lambda: [0])

    def statistics(self, observation: Observation) -> Statistics:
        if observation.layer != self.layer:
            return recall(observation.state) or observation.moments(defined=False).statistics
        batch = observation.moments(defined=False)
        self.pooled[:] = [pool(self.pooled[0], batch)] if self.pooled else [batch]
        self.called[0] += 1
        if self.called[0] % self.calls == 0:
            raise _Enough
        return batch.statistics


@dataclass(frozen=True)
class _Calibrate(Strategy):
    """The source statistics, while the moments of every example are collected. Which class an example is of is known
    only when the batch has passed: until then its moments are kept."""

    collected: dict[str, CalibrationAccumulator] = field(default_factory=dict)
    passing: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)

    def statistics(self, observation: Observation) -> Statistics:
        accumulator = self.collected.setdefault(observation.layer, CalibrationAccumulator())
        mean, square = observation.example_moments()
        accumulator.update(mean, square)
        self.passing.append((observation.layer, mean, square))
        return observation.source or observation.moments(defined=False).statistics

    def passed(self, output: Any) -> None:
        """Take the classes from the model's output, where it is logits."""
        if isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] > 1:
            classes = output.argmax(1)
            for layer, mean, square in self.passing:
                if len(mean) == len(classes):
                    self.collected[layer].update_classes(mean, square, classes)
        self.passing.clear()


def collect_population(
    model: nn.Module, adaptation: Adaptation, loader: Iterable[Any], *, exact: bool, progress: Progress | None = None
) -> None:
    """Fill the adaptation's states with the statistics of the whole data (see `Population`). A loader
    that can be gone through only once is kept in memory if it is needed more than once."""
    batches = list(loader) if exact and isinstance(loader, Iterator) else loader
    everything = _PoolAll()
    with _collecting(model, adaptation, everything):
        for x in islice(_inputs(model, batches), 1 if exact else None):
            model(x)
    if not everything.pooled:
        raise AdaptationError("the loader gave no batch; 'population' needs unlabelled data to take statistics from")
    home = adaptation.streams[HOME]
    if not exact:
        for layer, moments in everything.pooled.items():
            keep(home.state(layer), moments.statistics)
        return
    for done, (layer, calls) in enumerate(everything.calls.items(), start=1):
        one = _PoolOne(layer=layer, calls=calls)
        with _collecting(model, adaptation, one):
            for x in _inputs(model, batches):
                try:
                    model(x)
                except _Enough:
                    continue
        keep(home.state(layer), one.pooled[0].statistics)
        if progress is not None:
            progress(done, len(everything.calls))


def collect_calibration(
    model: nn.Module, adaptation: Adaptation, loader: Iterable[Any]
) -> dict[str, CalibrationAccumulator]:
    """The moments of every example of the loader, per layer."""
    calibrate = _Calibrate()
    with _collecting(model, adaptation, calibrate):
        for x in _inputs(model, loader):
            calibrate.passed(model(x))
    if not calibrate.collected:
        raise AdaptationError("the loader gave no batch; calibration needs unlabelled source data")
    return calibrate.collected


@contextmanager
def _collecting(model: nn.Module, adaptation: Adaptation, collector: Strategy) -> Iterator[None]:
    """Predict without gradients, eagerly, in `.eval()` mode, with a collector for a strategy."""
    strategy, flags = adaptation.strategy, [(m, m.training) for m in model.modules()]
    adaptation.strategy = collector
    try:
        model.eval()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        adaptation.strategy = strategy
        for module, training in flags:
            module.training = training


def _inputs(model: nn.Module, loader: Iterable[Any]) -> Iterator[Tensor]:
    """The inputs of a loader's batches on the model's device: the batch, or the first of a tuple."""
    device = device_of(model)
    for batch in loader:
        x = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(x, Tensor):
            raise AdaptationError(
                f"the loader gave a {type(x).__name__}; give tensors, or tuples that begin with one (wrap the loader "
                "in a generator that picks the input out)"
            )
        yield x if device is None else x.to(device)
