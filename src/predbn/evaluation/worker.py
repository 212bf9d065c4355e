"""Computes units. There is one worker per process; data and models are opened once and kept from unit to unit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from predbn.common import EvaluationError, each_on_one_core
from predbn.data import Images, Rows
from predbn.methods import Method, Temperature, find_method
from predbn.shifts import Attack, orders

from .batches import Prefetcher, Rebatcher, Reiterable, block_size
from .model_cache import ModelCache, PredictorKey
from .plan import Plan, is_ensemble, needs_fit
from .precision import numerics
from .predict import predict, start_stream
from .scoring import AttackedScores, CellScores, FiniteCheck
from .source import AnyBatch, Source
from .splits import Split, attack_of
from .units import Cell, Fit, FitUnit, Row, SplitUnit, Unit, UnitResult

_CALIBRATION_IMAGES, _CALIBRATION_BATCH = 5000, 500
_VALUES_PER_BLOCK = {"cpu": 1 << 22, "cuda": 1 << 25}
"""Input values to corrupt at a time: many on a GPU, because every step of a corruption is a kernel launch."""
_UNITS_AHEAD = 4
"""Units whose first images are made ahead on a GPU: some corruptions take the CPU longer than the GPU takes to predict
a split of small images."""


class _CellTask(NamedTuple):
    """A cell, the predictors whose logits its method combines, and its scores so far."""

    cell: Cell
    predictors: list[PredictorKey]
    method: Method
    scores: CellScores

    def row(self, unit: SplitUnit) -> Row:
        measured = self.scores.metrics(), self.scores.reliability(), self.scores.hits(), self.scores.predictions()
        return Row(self.cell, unit.split, unit.order, unit.seed, *measured)


class _StartedUnit(NamedTuple):
    """A unit whose images are being made, in blocks."""

    unit: SplitUnit
    tasks: list[_CellTask]
    pass_sizes: dict[PredictorKey, int]
    blocks: Iterator[AnyBatch]


class Worker:
    """Everything that is needed to compute the units of a plan on one device."""

    def __init__(
        self,
        plan: Plan,
        source: Source,
        cache: ModelCache,
        members: Mapping[str, Sequence[str]],
        validation: Images | Rows | None = None,
    ) -> None:
        self.plan, self.source, self.cache, self.members, self.validation = plan, source, cache, members, validation
        self.device = source.device
        if validation is not None:
            cache.calibration_data = self._calibration_data

    def do(self, unit: Unit) -> UnitResult:
        return next(self.run([unit]))

    def run(self, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """Compute units and yield their results, fits first.

        On a GPU the images of the next units are made while one is predicted, and a result is waited for when the next
        unit is queued, so that the GPU always has work.
        """
        for unit in units:
            if isinstance(unit, FitUnit):
                with numerics(self.plan.precision):
                    fit = self._fit(unit)
                yield UnitResult(unit, fits=(fit,))
        pending: Callable[[], UnitResult] | None = None
        try:
            for started in self._start_all([unit for unit in units if isinstance(unit, SplitUnit)]):
                finish = self._measure(started)
                if self._prefetcher is None:
                    yield finish()
                    continue
                if pending is not None:
                    yield pending()
                pending = finish
        except Exception:
            if pending is not None:  # a result that was computed is not lost
                yield pending()
            raise
        if pending is not None:
            yield pending()

    def stream(self, split: Split, order: str, seed: int, size: int) -> Iterator[AnyBatch]:
        """The images of a split, `size` at a time. On a GPU one block is always made ahead, the first one from now."""

        def stream() -> Iterator[AnyBatch]:
            return self.source.stream(split, order, seed, size)

        return stream() if self._prefetcher is None else self._prefetcher.start(stream)

    def block(self, model: str, size: int) -> int:
        """How many images to make at a time for batches of a size of one model."""
        return self._block_size([model], [size])

    @cached_property
    def _prefetcher(self) -> Prefetcher | None:
        self.source.move_to_device()
        return Prefetcher(self.device) if self.device.type == "cuda" else None

    def _start_all(self, units: Sequence[SplitUnit]) -> Iterator[_StartedUnit]:
        """Start making the images of each unit; on a GPU some units ahead."""
        ahead = 0 if self._prefetcher is None else _UNITS_AHEAD
        started: deque[_StartedUnit] = deque()
        for unit in units:
            started.append(self._start(unit))
            if len(started) > ahead:
                yield started.popleft()
        yield from started

    def _start(self, unit: SplitUnit) -> _StartedUnit:
        with numerics(self.plan.precision):
            tasks = [self._task(cell, unit) for cell in unit.cells]
            pass_sizes = {key: self.cache.pass_size(key) for task in tasks for key in task.predictors}
            size = self._block_size([key.model for key in pass_sizes], list(pass_sizes.values()))
            blocks = self.stream(unit.split, unit.order, unit.seed, size)
        return _StartedUnit(unit, tasks, pass_sizes, blocks)

    def _measure(self, started: _StartedUnit) -> Callable[[], UnitResult]:
        """Predict a unit up to where a GPU would have to be waited for; the returned function waits for the result."""
        unit, tasks, pass_sizes, blocks = started
        check, attack = FiniteCheck(str(unit.split)), attack_of(unit.order)
        with numerics(self.plan.precision):
            largest_batch = max(key.batch_size for key in pass_sizes)
            start_stream(self.cache, list(pass_sizes), lambda: self._inputs(unit, largest_batch))
            rebatchers = {size: Rebatcher(size) for size in sorted(set(pass_sizes.values()))}
            for block in blocks:
                batches = {size: rebatcher.push(block) for size, rebatcher in rebatchers.items()}
                self._score(tasks, pass_sizes, batches, check, attack)
            batches = {size: rebatcher.flush() for size, rebatcher in rebatchers.items()}
            self._score(tasks, pass_sizes, batches, check, attack)

        def finish() -> UnitResult:
            with numerics(self.plan.precision):
                check.check()
                return UnitResult(unit, rows=tuple(task.row(unit) for task in tasks))

        return finish

    def _task(self, cell: Cell, unit: SplitUnit) -> _CellTask:
        attack = attack_of(unit.order)
        temperatures = {fit[:3]: fit.value for fit in unit.fits}
        members = self.members[cell.model] if is_ensemble(cell.method) else [cell.model]
        setting = self.plan.settings[cell.strategy]
        # Without adaptation the batch size changes nothing: predict once for all sizes. In attacked batches it decides
        # which images are scored.
        size = self.plan.largest_batch if setting.is_identity and attack is None else cell.batch_size
        predictors = [PredictorKey(member, setting, size, attack is not None) for member in members]
        key = cell.model, cell.strategy, cell.batch_size
        arguments = {"value": temperatures[key]} if needs_fit(cell.method) else {}
        make_scores = CellScores if attack is None else partial(AttackedScores, attack, size)
        scores = make_scores(
            self.cache.model(members[0]).info.classes,
            bins=self.plan.ece_bins,
            diagram_bins=self.plan.diagram_bins,
            auc=self.source.has_auc,
            hits=self.plan.hits,
            labelled=self.source.is_labelled(unit.split),
            predictions=self.plan.keeps_predictions,
        )
        return _CellTask(cell, predictors, find_method(cell.method, **arguments), scores)

    def _block_size(self, models: Sequence[str], pass_sizes: list[int]) -> int:
        """How many images to corrupt at a time; on a CPU enough batches for all cores."""
        values = self.cache.model(models[0]).info.preprocessing.values
        min_batches = -(-torch.get_num_threads() // len(models)) if self.device.type == "cpu" else 1
        max_values = _VALUES_PER_BLOCK["cuda" if self.device.type == "cuda" else "cpu"]
        return block_size(pass_sizes, values, max_values, min_batches)

    def _inputs(self, unit: SplitUnit, size: int) -> Iterator[Tensor]:
        return (batch.inputs for batch in self.stream(unit.split, unit.order, unit.seed, size))

    def _score(
        self,
        tasks: list[_CellTask],
        pass_sizes: Mapping[PredictorKey, int],
        batches: Mapping[int, list[AnyBatch]],
        check: FiniteCheck,
        attack: Attack | None,
    ) -> None:
        """Predict the batches, which are given by pass size, with the predictors of that size, and score them."""
        batches = {size: several for size, several in batches.items() if several}
        logits = predict(self.cache, [key for key, size in pass_sizes.items() if size in batches], batches, attack)
        labels = {size: torch.cat([batch.labels for batch in several]) for size, several in batches.items()}
        index = {size: self._index(several) for size, several in batches.items()}
        for key, values in logits.items():
            check.update(key.model, values, index[pass_sizes[key]])
        for task in tasks:
            size = pass_sizes[task.predictors[0]]
            if size in batches:
                log_probabilities = task.method.log_probabilities([logits[key] for key in task.predictors])
                task.scores.update(log_probabilities, labels[size], index[size])

    def _index(self, batches: list[AnyBatch]) -> Tensor:
        return torch.cat([batch.index for batch in batches]).to(self.device, non_blocking=True)

    def _calibration_data(self, values: int) -> Iterator[Tensor]:
        """Clean data to calibrate on: the validation data, shuffled, without its labels."""
        size = max(1, min(_CALIBRATION_BATCH, _VALUES_PER_BLOCK["cuda"] // values))
        return (batch.inputs for batch in self._validation_batches(size, _CALIBRATION_IMAGES))

    def _validation_batches(self, size: int, count: int | None = None) -> Reiterable[AnyBatch]:
        """The validation data, shuffled; with `count`, only that many images or rows of it."""
        if self.validation is None:
            raise EvaluationError("there is no validation data to fit on: name some with --validation.")
        order = orders.shuffled(len(self.validation), seed=0)[:count]
        return Reiterable(partial(self.validation.batches, size, order=order, device=self.device))

    def _fit(self, unit: FitUnit) -> Fit:
        """Fit a temperature on the validation data, shuffled, a block of batches at a time; only logits are kept."""
        key = PredictorKey(unit.model, self.plan.settings[unit.strategy], unit.batch_size)
        size = self.cache.pass_size(key)
        batches = self._validation_batches(size)
        start_stream(self.cache, [key], lambda: (batch.inputs for batch in batches))
        check = FiniteCheck("the validation data")
        logits, labels, stream = [], [], iter(batches)
        while block := list(islice(stream, self._block_size([unit.model], [size]) // size)):
            values = predict(self.cache, [key], {size: block})[key]
            check.update(unit.model, values, self._index(block))
            logits.append(values.float().cpu())
            labels += [batch.labels.cpu() for batch in block]
        check.check()
        # On one core, so that the number of cores changes no bit of the result.
        (fitted,) = each_on_one_core(lambda _: Temperature.fit(torch.cat(logits), torch.cat(labels)), [None])
        return Fit(unit.model, unit.strategy, unit.batch_size, "temperature", fitted.value)
