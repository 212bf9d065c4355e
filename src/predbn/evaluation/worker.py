"""Does units: one worker a process, with the data opened once and models kept from unit to unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from predbn import methods
from predbn.data import Batch, Images
from predbn.data.batch import Order
from predbn.methods import Method, Temperature, tune_eps
from predbn.metrics import Scores
from predbn.shifts import orders

from .ahead import Ahead
from .cores import each_on_one_core
from .errors import EvaluationError
from .plan import is_ensemble, needs_fit
from .precision import Precision, casting, numerics
from .predict import Watch, begin, predict
from .rebatch import Rebatcher, block_size
from .settings import Setting
from .shelf import LaneKey, Shelf
from .source import Source
from .units import Cell, Fit, FitUnit, Row, SplitUnit, Unit, UnitResult

__all__ = ["Worker"]

CALIBRATION_IMAGES = 5000
_CALIBRATION_BATCH = 500

_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 25}
"""Values of pictures to corrupt at a time: on a GPU many, for every step of a corruption is a launch."""


class _Task(NamedTuple):
    """A cell with what it needs: the lanes whose logits go into its method, and where its scores are kept."""

    cell: Cell
    lanes: list[LaneKey]
    span: int
    method: Method
    scores: Scores


class _Begun(NamedTuple):
    """A unit whose images are on their way, in `total` blocks."""

    unit: SplitUnit
    tasks: list[_Task]
    spans: dict[LaneKey, int]
    blocks: Iterator[Batch]
    total: int


class Worker:
    """Everything that is needed to do a plan's units, on one device."""

    def __init__(
        self,
        source: Source,
        shelf: Shelf,
        members: Mapping[str, Sequence[str]],
        *,
        validation: Images | None = None,
        precision: Precision = "fp32",
        bins: int = 10,
    ) -> None:
        self.source, self.shelf, self.members, self.validation = source, shelf, members, validation
        self.precision, self.bins, self.device = precision, bins, source.device
        self._begun: _Begun | None = None
        if validation is not None:
            shelf.calibration = self._calibration

    def do(self, unit: Unit, then: Unit | None = None) -> UnitResult:
        """The result of a unit. On a GPU the images of `then`, the unit to come, are begun before it is finished."""
        with numerics(self.precision):
            if isinstance(unit, FitUnit):
                return UnitResult(unit, fits=(self._fit(unit),))
            return UnitResult(unit, rows=tuple(self._measure(unit, then)))

    @cached_property
    def _ahead(self) -> Ahead | None:
        self.source.hold()
        return Ahead(self.device) if self.device.type == "cuda" else None

    def _stream(self, unit: SplitUnit, size: int) -> Iterator[Batch]:
        def stream() -> Iterator[Batch]:
            return self.source.stream(unit.split, unit.order, unit.seed, size)

        return stream() if self._ahead is None else self._ahead.begin(stream)

    def _begin(self, unit: SplitUnit) -> _Begun:
        tasks = [self._task(cell, unit.fits) for cell in unit.cells]
        spans = {key: self.shelf.span(key) for task in tasks for key in task.lanes}
        size = self._block(list(spans), list(spans.values()))
        return _Begun(unit, tasks, spans, self._stream(unit, size), -(-len(self.source) // size))

    def _measure(self, unit: SplitUnit, then: Unit | None) -> list[Row]:
        begun, self._begun = self._begun, None
        if begun is None or begun.unit is not unit:
            begun = self._begin(unit)
        _, tasks, spans, blocks, total = begun
        size = max(key.batch_size for key in spans)
        begin(self.shelf, list(spans), lambda: (batch.images for batch in self._stream(unit, size)))
        rebatchers = {span: Rebatcher(span) for span in sorted(set(spans.values()))}
        watch = Watch(str(unit.split))
        for number, block in enumerate(blocks, start=1):
            if number == total and isinstance(then, SplitUnit) and self._ahead is not None:
                self._begun = self._begin(then)
            self._score(tasks, spans, {span: each.push(block) for span, each in rebatchers.items()}, watch)
        self._score(tasks, spans, {span: [*each.flush()] for span, each in rebatchers.items()}, watch)
        watch.check()
        return [
            Row(task.cell, unit.split, unit.order, unit.seed, task.scores.compute(), task.scores.reliability().rows())
            for task in tasks
        ]

    def _task(self, cell: Cell, fits: Sequence[Fit]) -> _Task:
        fitted = {
            (fit.model, fit.what): fit.value
            for fit in fits
            if (fit.strategy, fit.batch_size) == (cell.strategy, cell.batch_size)
        }
        members = self.members[cell.model] if is_ensemble(cell.method) else [cell.model]
        setting = Setting.parse(cell.strategy)
        lanes = [
            LaneKey(member, cell.strategy, cell.batch_size, fitted[member, "eps"] if eps == "tuned" else eps)
            for member, eps in ((member, setting.eps) for member in members)
        ]
        arguments = {"value": fitted[cell.model, "temperature"]} if needs_fit(cell.method) else {}
        classes = self.shelf.model(members[0]).description.classes
        span = self.shelf.span(lanes[0])
        return _Task(cell, lanes, span, methods.find(cell.method, **arguments), Scores(classes, bins=self.bins))

    def _block(self, lanes: Sequence[LaneKey], spans: list[int]) -> int:
        """How many images to corrupt at a time; on a CPU batches enough for all cores."""
        height, width = self.shelf.model(lanes[0].model).description.preprocessing.size
        least = -(-torch.get_num_threads() // len(lanes)) if self.device.type == "cpu" else 1
        at_once = _AT_ONCE["cuda" if self.device.type == "cuda" else "cpu"]
        return block_size(spans, 3 * height * width, at_once, least)

    def _score(
        self, tasks: list[_Task], spans: Mapping[LaneKey, int], batches: Mapping[int, list[Batch]], watch: Watch
    ) -> None:
        """Predict the batches of every span with the lanes of that span, and add them to the scores."""
        logits = predict(self.shelf, [key for key, span in spans.items() if batches[span]], batches)
        labels = {span: torch.cat([batch.labels for batch in each]) for span, each in batches.items() if each}
        index = {span: self._index(each) for span, each in batches.items() if each}
        for key, found in logits.items():
            watch.see(key.model, found, index[spans[key]])
        for task in tasks:
            if task.span in labels:
                logs = task.method.log_probabilities([logits[key] for key in task.lanes])
                task.scores.update(logs.exp(), labels[task.span], log_probabilities=logs)

    def _calibration(self, values: int) -> Iterator[Tensor]:
        """Clean images to calibrate on: validation images, shuffled, without their labels."""
        assert self.validation is not None
        order = orders.shuffled(len(self.validation), seed=0)[:CALIBRATION_IMAGES]
        size = max(1, min(_CALIBRATION_BATCH, _AT_ONCE["cuda"] // values))
        return (batch.images for batch in self.validation.batches(size, order=order, device=self.device))

    def _index(self, batches: list[Batch]) -> Tensor:
        return torch.cat([batch.index for batch in batches]).to(self.device, non_blocking=True)

    def _fit(self, unit: FitUnit) -> Fit:
        """Find a temperature or an eps on the validation data, shuffled, in batches of the size it is for."""
        if self.validation is None:
            raise EvaluationError("there is no validation data to fit on: name some with --validation.")
        images = self.validation
        order = orders.shuffled(len(images), seed=0)
        value: float | None
        if unit.what == "eps":
            value = each_on_one_core(lambda _: self._tuned(unit, _Batches(images, order, unit.batch_size, self)), [0])[
                0
            ]
        else:
            key = LaneKey(unit.model, unit.strategy, unit.batch_size, unit.eps)
            span = self.shelf.span(key)
            batches = list(images.batches(span, order=order, device=self.device))
            begin(self.shelf, [key], lambda: (batch.images for batch in batches))
            logits = predict(self.shelf, [key], {span: batches})[key]
            watch = Watch(f"validation data {images.name}")
            watch.see(unit.model, logits, self._index(batches))
            watch.check()
            labels = torch.cat([batch.labels for batch in batches])
            fit = partial(Temperature.fit, labels=labels.cpu())
            value = each_on_one_core(fit, [logits.float().cpu()])[0].value
        return Fit(unit.model, unit.strategy, unit.batch_size, unit.what, value)

    def _tuned(self, unit: FitUnit, batches: _Batches) -> float | None:
        setting = Setting.parse(unit.strategy)
        with casting(self.precision, self.device):
            choice = tune_eps(
                self.shelf.model(unit.model),
                batches,
                strategy=setting.strategy,
                layers=setting.layers,
                bins=self.bins,
            )
        return choice.eps


class _Batches:
    """Validation batches that can be gone through as often as one likes."""

    def __init__(self, images: Images, order: Order, size: int, worker: Worker) -> None:
        self._arguments = images, order, size, worker.device

    def __iter__(self) -> Iterator[Batch]:
        images, order, size, device = self._arguments
        return images.batches(size, order=order, device=device)
