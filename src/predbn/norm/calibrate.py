"""Passes over unlabelled data that measure something, and the pass that calibrates.

During such a pass the strategy is replaced by a collector, a strategy that stores what it sees. Only the batch norm
layers are affected: the model stays in `.eval()` mode, so dropout stays off.
"""

from __future__ import annotations

import warnings
from collections import Counter
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
from .layers import modules_of, shortened
from .observation import Observation
from .statistics import Statistics
from .strategies import Strategy
from .streams.blocks import current_selection

MIN_CLASS_EXAMPLES = 20
"""With 12 instead of 100 images predicted as cats a ResNet-20 lost 44 points in batches of cats, with 20 none to 4."""


@dataclass(frozen=True)
class _CollectCalibration(Strategy):
    """The source statistics are used, and the moments of every example are accumulated.

    The class of an example is known only at the end of the pass; until then its moments are stored in `current_pass`.
    """

    accumulators: dict[str, CalibrationAccumulator] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    predicted: Counter[int] = field(default_factory=Counter)
    current_pass: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    scores: ScoreCorrelation = field(default_factory=ScoreCorrelation)

    def statistics(self, observation: Observation) -> Statistics:
        accumulator = self.accumulators.setdefault(observation.layer, CalibrationAccumulator())
        mean, var = observation.example_moments()
        square = var + mean * mean
        finite_mean, finite_square = _finite_rows(mean, square)
        accumulator.update(finite_mean, finite_square)
        self.left_out[observation.layer] += len(mean) - len(finite_mean)
        self.current_pass.append((observation.layer, mean, square))
        return observation.source or observation.moments(allow_single_value=True, may_wait=True).statistics

    def end_pass(self, output: Any) -> None:
        """Use the classes that the model predicted, if its output are the scores of classes."""
        if is_class_scores(output):
            classes = output.argmax(1)
            self.predicted.update(dict.fromkeys(range(output.shape[1]), 0))
            self.predicted.update(classes[output.isfinite().all(1)].tolist())
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
    measured = [collector for collector in collectors.values() if collector.accumulators]
    if not measured:
        raise AdaptationError("the loader gave no batch; calibration needs unlabelled source data")
    for collector in measured:
        _check_examples(collector)
    return {adaptation: collector.accumulators for adaptation, collector in collectors.items()}


def _check_examples(collector: _CollectCalibration) -> None:
    """Whether enough examples were finite, and enough predicted as each class."""
    layer = min(collector.accumulators, key=lambda layer: collector.accumulators[layer].size)
    size, left_out = collector.accumulators[layer].size, collector.left_out[layer]
    if left_out:
        finding = f"{left_out} of {size + left_out} examples are not finite (NaN or infinite) in layer '{layer}'"
        if size < 2:
            raise AdaptationError(f"{finding}, so that calibration has nothing to measure; check the data and weights")
        warnings.warn(f"{finding}; calibration leaves them out", UserWarning, stacklevel=4)
    elif size < 2:
        raise AdaptationError("calibration got a single example; it measures how much examples differ by chance")
    few = {label: count for label, count in collector.predicted.items() if count < MIN_CLASS_EXAMPLES}
    if few and len(collector.predicted) <= MAX_GROUPS:
        listed = shortened([f"{label} ({count})" for label, count in sorted(few.items())])
        warnings.warn(
            f"calibration saw fewer than {MIN_CLASS_EXAMPLES} examples that the model predicts as class {listed}: "
            "'auto' and 'auto_stream' may predict batches of few classes badly if these are among them; give more "
            "source examples, of all classes",
            UserWarning,
            stacklevel=4,
        )


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
    modes = [(module, module.training) for module in modules_of(model)]
    try:
        model.eval()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, training in modes:
            module.training = training
