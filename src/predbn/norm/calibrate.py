"""Passes over unlabelled data that measure something, and the pass that calibrates.

During such a pass the strategy is replaced by a collector, a strategy that stores what it sees. Only the batch norm
layers are affected: the model stays in `.eval()` mode, so dropout stays off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError

from .adaptation import Adaptation
from .auto.calibration import GROUP_SIZE, MAX_CLASSES, MAX_GROUPS, CalibrationAccumulator
from .auto.class_groups import ScoreCorrelation
from .auto.composition import is_class_scores
from .forward import BatchForward, Forward, batches_of
from .observation import Observation
from .statistics import Statistics
from .strategies import Strategy
from .streams.blocks import current_selection


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
        mean, var = observation.example_moments()
        square = var + mean * mean
        accumulator.update(*_finite_rows(mean, square))
        self.current_pass.append((observation.layer, mean, square))
        return observation.source or observation.moments(allow_single_value=True, may_wait=True).statistics

    def end_pass(self, output: Any) -> None:
        """Use the classes that the model predicted, if its output are the scores of classes."""
        if is_class_scores(output):
            classes = output.argmax(1)
            for layer, mean, square in self.current_pass:
                if len(mean) == len(classes):
                    mean, square, known = _finite_rows(mean, square, classes)
                    self.accumulators[layer].update_classes(mean, square, known, output.shape[1])
            if MAX_GROUPS < output.shape[1] <= MAX_CLASSES:
                self.scores.update(output)
        self.current_pass.clear()

    def group_classes(self) -> None:
        """Put many classes into groups, after the last pass."""
        if self.scores.size:
            count = min(self.scores.size // GROUP_SIZE, MAX_GROUPS)
            groups = self.scores.groups(count) if count > 1 else None
            for accumulator in self.accumulators.values():
                accumulator.group_classes(groups)


def _finite_rows(mean: Tensor, square: Tensor, *others: Tensor) -> list[Tensor]:
    """Examples whose moments are finite in all channels."""
    is_finite = (mean + square).isfinite().all(1)
    return [t[is_finite] for t in (mean, square, *others)]


def collect_calibration(
    model: nn.Module, adaptations: Iterable[Adaptation], loader: Iterable[Any], forward: Forward | None = None
) -> dict[Adaptation, dict[str, CalibrationAccumulator]]:
    """The moments of every example of the loader, accumulated per layer of each adaptation, in one pass."""
    collectors = {adaptation: _CollectCalibration() for adaptation in adaptations}
    predict = BatchForward(model, forward)
    with collecting(model, collectors):
        for batch in batches_of(loader):
            output = predict(batch)
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
def collecting(model: nn.Module, collectors: Mapping[Adaptation, Strategy]) -> Iterator[None]:
    """Use collectors as the strategies, in `.eval()` mode, eagerly and without gradients.

    Batches are not divided into groups, and not synchronised: another process may have fewer of them.
    """
    with ExitStack() as stack:
        for adaptation, collector in collectors.items():
            if current_selection(adaptation).segments is not None:
                raise AdaptationError(
                    "calibration and population statistics are those of one source; measure them outside of "
                    "predbn.streams(model, …)"
                )
            before = {key: getattr(adaptation, key) for key in ("strategy", "group", "sync", "limit")}
            stack.callback(adaptation.__dict__.update, before)
            adaptation.strategy, adaptation.group, adaptation.sync, adaptation.limit = collector, None, False, None
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
