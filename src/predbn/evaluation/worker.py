"""Does units: one worker a process, with the data opened once and models kept from unit to unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from predbn import methods
from predbn.common import EvaluationError, each_on_one_core
from predbn.data import Images, Order, Rows
from predbn.methods import Method, Temperature, tune_eps
from predbn.metrics import ScoreHistogram, Scores
from predbn.shifts import orders

from .hits import Hits
from .model_cache import LaneKey, Shelf
from .plan import Plan, is_ensemble, needs_fit
from .precision import Precision, casting, numerics
from .predict import Watch, begin, predict
from .prefetch import Ahead
from .rebatch import AnyBatch, Rebatcher, block_size
from .settings import Setting
from .source import Source
from .splits import Split
from .units import Cell, Fit, FitUnit, Row, SplitUnit, Unit, UnitResult

__all__ = ["Worker", "settings_of"]

_CALIBRATION, _CALIBRATION_BATCH = 5000, 500
"""Images or rows to calibrate on, and how many of them at a time."""

_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 25}
"""Values of pictures to corrupt at a time: on a GPU many, for every step of a corruption is a launch."""

_SPREAD = 8.0
"""Logits are divided by it before they are ranked between 0 and 1: the order is the same, and none are crowded at the
ends, where a histogram would take them for ties."""


class _Task(NamedTuple):
    """A cell with what it needs: the lanes whose logits go into its method, and where its scores are kept; for rows
    also the order of the click probabilities, for the AUC."""

    cell: Cell
    lanes: list[LaneKey]
    method: Method
    scores: Scores
    ranking: ScoreHistogram | None
    hits: Hits | None

    def see(self, logs: Tensor, labels: Tensor, index: Tensor) -> None:
        probabilities = logs.exp()
        self.scores.update(probabilities, labels, log_probabilities=logs)
        if self.ranking is not None:
            self.ranking.update(((logs[:, 1] - logs[:, 0]).double() / _SPREAD).sigmoid(), labels)
        if self.hits is not None:
            self.hits.update(probabilities, labels, index)

    def row(self, unit: SplitUnit) -> Row:
        found = self.scores.compute()
        metrics = found if self.ranking is None else {**found, "auc": self.ranking.auc()}
        hits = None if self.hits is None else self.hits.pack()
        return Row(self.cell, unit.split, unit.order, unit.seed, metrics, self.scores.reliability().rows(), hits)


class _Begun(NamedTuple):
    """A unit whose images are on their way, in `total` blocks."""

    unit: SplitUnit
    tasks: list[_Task]
    spans: dict[LaneKey, int]
    blocks: Iterator[AnyBatch]
    total: int


class Worker:
    """Everything that is needed to do a plan's units, on one device."""

    def __init__(
        self,
        source: Source,
        shelf: Shelf,
        members: Mapping[str, Sequence[str]],
        *,
        validation: Images | Rows | None = None,
        precision: Precision = "fp32",
        bins: int = 10,
        diagram_bins: int | None = None,
        hits: bool = False,
        largest: int = 500,
    ) -> None:
        self.source, self.shelf, self.members, self.validation = source, shelf, members, validation
        self.largest = largest
        self.precision, self.bins, self.device = precision, bins, source.device
        self.diagram_bins, self.hits = diagram_bins, hits
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

    def stream(self, split: Split, order: str, seed: int, size: int) -> Iterator[AnyBatch]:
        """The images of a split, `size` at a time; on a GPU the first are being made from now on, and then always the
        next."""

        def stream() -> Iterator[AnyBatch]:
            return self.source.stream(split, order, seed, size)

        return stream() if self._ahead is None else self._ahead.begin(stream)

    def _stream(self, unit: SplitUnit, size: int) -> Iterator[AnyBatch]:
        return self.stream(unit.split, unit.order, unit.seed, size)

    def block(self, model: str, size: int) -> int:
        """How many images to make at a time for batches of a size of one model."""
        return self._block([LaneKey(model, "train", size, None)], [size])

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
        begin(self.shelf, list(spans), lambda: (batch.inputs for batch in self._stream(unit, size)))
        rebatchers = {span: Rebatcher(span) for span in sorted(set(spans.values()))}
        watch = Watch(str(unit.split))
        for number, block in enumerate(blocks, start=1):
            if number == total and isinstance(then, SplitUnit) and self._ahead is not None:
                self._begun = self._begin(then)
            self._score(tasks, spans, {span: each.push(block) for span, each in rebatchers.items()}, watch)
        self._score(tasks, spans, {span: [*each.flush()] for span, each in rebatchers.items()}, watch)
        watch.check()
        return [task.row(unit) for task in tasks]

    def _task(self, cell: Cell, fits: Sequence[Fit]) -> _Task:
        fitted = {
            (fit.model, fit.what): fit.value
            for fit in fits
            if (fit.strategy, fit.batch_size) == (cell.strategy, cell.batch_size)
        }
        members = self.members[cell.model] if is_ensemble(cell.method) else [cell.model]
        setting = Setting.parse(cell.strategy)
        # What is the same in batches of any size is predicted once for all of them.
        size = self.largest if setting.is_identity else cell.batch_size
        lanes = [
            LaneKey(member, cell.strategy, size, fitted[member, "eps"] if eps == "tuned" else eps)
            for member, eps in ((member, setting.eps) for member in members)
        ]
        arguments = {"value": fitted[cell.model, "temperature"]} if needs_fit(cell.method) else {}
        classes = self.shelf.model(members[0]).description.classes
        ranking = ScoreHistogram() if self.source.is_tabular else None
        scores = Scores(classes, bins=self.bins, diagram_bins=self.diagram_bins)
        hits = Hits() if self.hits else None
        return _Task(cell, lanes, methods.find(cell.method, **arguments), scores, ranking, hits)

    def _block(self, lanes: Sequence[LaneKey], spans: list[int]) -> int:
        """How many images to corrupt at a time; on a CPU batches enough for all cores."""
        values = self.shelf.model(lanes[0].model).description.preprocessing.values
        least = -(-torch.get_num_threads() // len(lanes)) if self.device.type == "cpu" else 1
        at_once = _AT_ONCE["cuda" if self.device.type == "cuda" else "cpu"]
        return block_size(spans, values, at_once, least)

    def _score(
        self, tasks: list[_Task], spans: Mapping[LaneKey, int], batches: Mapping[int, list[AnyBatch]], watch: Watch
    ) -> None:
        """Predict the batches of every span with the lanes of that span, and add them to the scores."""
        logits = predict(self.shelf, [key for key, span in spans.items() if batches[span]], batches)
        labels = {span: torch.cat([batch.labels for batch in each]) for span, each in batches.items() if each}
        index = {span: self._index(each) for span, each in batches.items() if each}
        for key, found in logits.items():
            watch.see(key.model, found, index[spans[key]])
        for task in tasks:
            span = spans[task.lanes[0]]
            if span in labels:
                logs = task.method.log_probabilities([logits[key] for key in task.lanes])
                task.see(logs, labels[span], index[span])

    def _calibration(self, values: int) -> Iterator[Tensor]:
        """Clean data to calibrate on: that of validation, shuffled, without its labels."""
        assert self.validation is not None
        order = orders.shuffled(len(self.validation), seed=0)[:_CALIBRATION]
        size = max(1, min(_CALIBRATION_BATCH, _AT_ONCE["cuda"] // values))
        return (batch.inputs for batch in self.validation.batches(size, order=order, device=self.device))

    def _index(self, batches: list[AnyBatch]) -> Tensor:
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
            value = self._temperature(unit, images, order)
        return Fit(unit.model, unit.strategy, unit.batch_size, unit.what, value)

    def _temperature(self, unit: FitUnit, images: Images | Rows, order: Order) -> float:
        """Some batches at a time: only the logits are kept."""
        key = LaneKey(unit.model, unit.strategy, unit.batch_size, unit.eps)
        span = self.shelf.span(key)
        batches = _Batches(images, order, span, self)
        begin(self.shelf, [key], lambda: (batch.inputs for batch in batches))
        watch = Watch("the validation data")
        logits, labels, stream = [], [], iter(batches)
        while several := list(islice(stream, -(-self._block([key], [span]) // span))):
            found = predict(self.shelf, [key], {span: several})[key]
            watch.see(unit.model, found, self._index(several))
            logits.append(found.float().cpu())
            labels += [batch.labels.cpu() for batch in several]
        watch.check()
        fit = partial(Temperature.fit, labels=torch.cat(labels))
        return each_on_one_core(fit, [torch.cat(logits)])[0].value

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


def settings_of(plan: Plan) -> dict[str, Any]:
    """What of a plan a worker has to know beside its data and its models."""
    return {
        "precision": plan.precision,
        "bins": plan.ece_bins,
        "diagram_bins": plan.diagram_bins,
        "hits": plan.hits,
        "largest": plan.largest_batch,
    }


class _Batches:
    """Validation batches that can be gone through as often as one likes."""

    def __init__(self, images: Images | Rows, order: Order, size: int, worker: Worker) -> None:
        self._arguments = images, order, size, worker.device

    def __iter__(self) -> Iterator[AnyBatch]:
        images, order, size, device = self._arguments
        return images.batches(size, order=order, device=device)
