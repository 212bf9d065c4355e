"""Passes over unlabelled data that measure population statistics and calibrations.

During such a pass the strategy is replaced by a collector, a strategy that stores what it sees. Only the batch norm
layers are affected: the model stays in `.eval()` mode, so dropout stays off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from predbn.common import AdaptationError, Progress

from .adapted_layer import Adaptation
from .calibration import GROUP_SIZE, MOST_CLASSES, MOST_GROUPS, CalibrationAccumulator
from .class_groups import ScoreCorrelation
from .composition import is_class_scores
from .layers import device_of
from .observation import Observation
from .statistics import Moments, Statistics, pool
from .strategies import Strategy
from .strategies.base import load_statistics, save_statistics
from .stream_blocks import current_selection

_MOST_REPETITIONS = 30
_TOLERANCE = 1e-6


class _StopPass(Exception):
    """Ends a pass early, because the remaining layers are not needed."""


@dataclass(frozen=True)
class _PoolAllLayers(Strategy):
    """Each batch is normalised with its own statistics, and the moments of every layer are pooled.

    `calls` counts for each batch how often it called each layer, in the order of the first calls.
    """

    pooled: dict[str, Moments] = field(default_factory=dict)
    calls: list[dict[str, int]] = field(default_factory=list)

    def statistics(self, observation: Observation) -> Statistics:
        layer, batch = observation.layer, observation.moments(allow_single_value=True, may_wait=True)
        self.calls[-1][layer] = self.calls[-1].get(layer, 0) + 1
        self.pooled[layer] = pool(self.pooled[layer], batch) if layer in self.pooled else batch
        return batch.statistics if batch.values > 1 else self.pooled[layer].statistics


class _PoolOneLayer(Strategy):
    """The moments of one layer are pooled. Earlier layers use their final statistics, later ones are not run.

    `guess` is what the layer itself uses if its later calls depend on its earlier ones; by default each call uses its
    own statistics.
    """

    def __init__(self, layer: str, most_calls: int, guess: Statistics | None = None) -> None:
        self.layer = layer
        self.most_calls = most_calls
        self.guess = guess
        self.calls = 0
        self.pooled: Moments | None = None

    def statistics(self, observation: Observation) -> Statistics:
        if observation.layer != self.layer:
            return (
                load_statistics(observation.state)
                or observation.moments(allow_single_value=True, may_wait=True).statistics
            )
        batch = observation.moments(allow_single_value=True, may_wait=True)
        self.pooled = batch if self.pooled is None else pool(self.pooled, batch)
        self.calls += 1
        if self.calls == self.most_calls:
            raise _StopPass
        return self.guess or batch.statistics


@dataclass(frozen=True)
class _CollectCalibration(Strategy):
    """The source statistics are used, and the moments of every example are accumulated.

    The class of an example is known only at the end of the pass; until then its moments are stored in `current_pass`.
    """

    accumulators: dict[str, CalibrationAccumulator] = field(default_factory=dict)
    current_pass: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    scores: ScoreCorrelation = field(default_factory=ScoreCorrelation)

    def statistics(self, observation: Observation) -> Statistics:
        accumulator = self.accumulators.setdefault(observation.layer, CalibrationAccumulator())
        mean, square = observation.example_moments()
        accumulator.update(*_finite_rows(mean, square))
        self.current_pass.append((observation.layer, mean, square))
        return observation.source or observation.moments(allow_single_value=True, may_wait=True).statistics

    def end_pass(self, output: Any) -> None:
        """Use the classes that the model predicted, if its output are the scores of classes."""
        if is_class_scores(output):
            classes = output.argmax(1)
            for layer, mean, square in self.current_pass:
                if len(mean) == len(classes):
                    mean, square, own_classes = _finite_rows(mean, square, classes)
                    self.accumulators[layer].update_classes(mean, square, own_classes, output.shape[1])
            if MOST_GROUPS < output.shape[1] <= MOST_CLASSES:
                self.scores.update(output)
        self.current_pass.clear()

    def group_classes(self) -> None:
        """Put many classes into groups, after the last pass."""
        if self.scores.size:
            count = min(self.scores.size // GROUP_SIZE, MOST_GROUPS)
            groups = self.scores.groups(count) if count > 1 else None
            for accumulator in self.accumulators.values():
                accumulator.group_classes(groups)


def _finite_rows(mean: Tensor, square: Tensor, *others: Tensor) -> list[Tensor]:
    """Examples whose moments are finite in all channels."""
    is_finite = (mean + square).isfinite().all(1)
    return [t[is_finite] for t in (mean, square, *others)]


def collect_population(
    model: nn.Module, adaptation: Adaptation, loader: Iterable[Any], *, exact: bool, progress: Progress | None = None
) -> None:
    """Fill the states of the layers with the statistics of the whole data (see `Population`).

    An iterable that can be used only once is kept in memory if it is needed more often.
    """
    batches = _reusable(loader) if exact else loader
    collector = _PoolAllLayers()
    with _collecting(model, {adaptation: collector}):
        for x in _inputs(model, batches):
            collector.calls.append({})
            model(x)
    if not collector.pooled:
        raise AdaptationError("the loader gave no batch; 'population' needs unlabelled data to take statistics from")
    stream = adaptation.default_stream
    if not exact:
        for layer, moments in collector.pooled.items():
            save_statistics(stream.state(layer), moments.statistics)
        return
    for done, layer in enumerate(_in_order(collector.calls), start=1):
        most_calls = max(calls.get(layer, 0) for calls in collector.calls)
        save_statistics(stream.state(layer), _pool_one_layer(model, adaptation, batches, layer, most_calls))
        if progress is not None:
            progress(done, len(collector.pooled))


def _reusable(loader: Iterable[Any]) -> Iterable[Any]:
    is_reusable = isinstance(loader, Sequence | DataLoader | Tensor) or iter(loader) is not iter(loader)
    return loader if is_reusable else list(loader)


def _in_order(calls: list[dict[str, int]]) -> list[str]:
    """The layers, each after all that any batch calls before it; if batches disagree, as they first appeared."""
    sorter: TopologicalSorter[str] = TopologicalSorter({layer: () for batch in calls for layer in batch})
    for batch in calls:
        for earlier, later in pairwise(batch):
            sorter.add(later, earlier)
    try:
        return list(sorter.static_order())
    except CycleError:
        return list(dict.fromkeys(layer for batch in calls for layer in batch))


def _pool_one_layer(
    model: nn.Module, adaptation: Adaptation, batches: Iterable[Any], layer: str, most_calls: int
) -> Statistics:
    """The statistics of all inputs of a layer.

    If a layer is called again with what its first call made, its inputs depend on the result. Then the pass is repeated
    with the last result until it reproduces itself.
    """
    guess: Statistics | None = None
    for _ in range(_MOST_REPETITIONS):
        collector = _PoolOneLayer(layer, most_calls, guess)
        with _collecting(model, {adaptation: collector}):
            for x in _inputs(model, batches):
                collector.calls = 0
                with suppress(_StopPass):
                    model(x)
        if collector.pooled is None:
            raise AdaptationError("the loader gave its batches only once; give a list, or something that can be reused")
        statistics = collector.pooled.statistics
        if most_calls == 1 or (guess is not None and _nearly_equal(statistics, guess)):
            break
        guess = statistics
    return statistics


def _nearly_equal(a: Statistics, b: Statistics) -> bool:
    """Means are compared to the standard deviation."""
    scale = b.var.clamp(min=_TOLERANCE**2)
    mean_differs = ((a.mean - b.mean) ** 2 > _TOLERANCE**2 * scale).any()
    return not bool(mean_differs | ((a.var - b.var).abs() > _TOLERANCE * scale).any())


def collect_calibration(
    model: nn.Module, adaptations: Iterable[Adaptation], loader: Iterable[Any]
) -> dict[Adaptation, dict[str, CalibrationAccumulator]]:
    """The moments of every example of the loader, accumulated per layer of each adaptation, in one pass."""
    collectors = {adaptation: _CollectCalibration() for adaptation in adaptations}
    with _collecting(model, collectors):
        for x in _inputs(model, loader):
            output = model(x)
            for collector in collectors.values():
                collector.end_pass(output)
    for collector in collectors.values():
        collector.group_classes()
    sizes = [accumulator.size for collector in collectors.values() for accumulator in collector.accumulators.values()]
    if not sizes:
        raise AdaptationError("the loader gave no batch; calibration needs unlabelled source data")
    if min(sizes) < 2:
        raise AdaptationError("calibration got a single example; it measures how much examples differ by chance")
    return {adaptation: collector.accumulators for adaptation, collector in collectors.items()}


@contextmanager
def _collecting(model: nn.Module, collectors: Mapping[Adaptation, Strategy]) -> Iterator[None]:
    """Use collectors as the strategies, without groups, in `.eval()` mode, eagerly and without gradients."""
    with ExitStack() as stack:
        for adaptation, collector in collectors.items():
            if current_selection(adaptation).rows is not None:
                raise AdaptationError(
                    "calibration and population statistics are those of one source; measure them outside of "
                    "predbn.streams(model, …)"
                )
            stack.callback(adaptation.__dict__.update, strategy=adaptation.strategy, group=adaptation.group)
            adaptation.strategy, adaptation.group = collector, None
        stack.enter_context(evaluating(model))
        yield


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
    """The inputs of a loader on the model's device. A tensor is one batch, not a batch per example."""
    device = device_of(model)
    for batch in [loader] if isinstance(loader, Tensor) else loader:
        x = input_of(batch)
        if not isinstance(x, Tensor):
            raise AdaptationError(
                f"the loader gave a {type(x).__name__}; give tensors, or tuples that begin with one (wrap the loader "
                "in a generator that picks the input out)"
            )
        yield x if device is None else x.to(device)
