"""Computes units. There is one worker per process; data and models are opened once and kept from unit to unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from predbn.common import EvaluationError
from predbn.data import Images, Rows
from predbn.methods import Method, Temperature, find_method, tune_eps
from predbn.shifts import Attack, orders

from .batches import Prefetcher, Rebatcher, Reiterable, block_size
from .model_cache import ModelCache, PredictorKey
from .plan import Plan, Setting, is_ensemble, needs_fit
from .precision import casting, numerics
from .predict import on_one_core, predict, start_stream
from .scoring import AttackedScores, CellScores, FiniteCheck
from .source import AnyBatch, Source
from .splits import Split, attack_of
from .units import Cell, Fit, FitUnit, Row, SplitUnit, Unit, UnitResult

_CALIBRATION_IMAGES, _CALIBRATION_BATCH = 5000, 500
_VALUES_PER_BLOCK = {"cpu": 1 << 22, "cuda": 1 << 25}
"""Input values to corrupt at a time: many on a GPU, because every step of a corruption is a kernel launch."""


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
    """A unit whose images are being made, in `block_count` blocks."""

    unit: SplitUnit
    tasks: list[_CellTask]
    pass_sizes: dict[PredictorKey, int]
    blocks: Iterator[AnyBatch]
    block_count: int


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
        self._started: list[_StartedUnit] = []
        if validation is not None:
            cache.calibration_data = self._calibration_data

    def do(self, unit: Unit, *following: Unit) -> UnitResult:
        """Compute a unit. On a GPU, making the images of the `following` ones starts before it is finished."""
        return self.begin(unit, *following)()

    def begin(self, unit: Unit, *following: Unit) -> Callable[[], UnitResult]:
        """The same, up to where a GPU would have to be waited for: calling what is returned waits for the result."""
        with numerics(self.plan.precision):
            if isinstance(unit, FitUnit):
                result = UnitResult(unit, fits=(self._fit(unit),))
                return lambda: result
            return self._measure(unit, following)

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

    def _measure(self, unit: SplitUnit, following: Sequence[Unit]) -> Callable[[], UnitResult]:
        started = next((each for each in self._started if each.unit is unit), None) or self._start(unit)
        self._started = [each for each in self._started if any(each.unit is other for other in following)]
        _, tasks, pass_sizes, blocks, block_count = started
        largest_batch = max(key.batch_size for key in pass_sizes)
        start_stream(self.cache, list(pass_sizes), lambda: self._inputs(unit, largest_batch))
        rebatchers = {size: Rebatcher(size) for size in sorted(set(pass_sizes.values()))}
        check, attack = FiniteCheck(str(unit.split)), attack_of(unit.order)
        for number, block in enumerate(blocks, start=1):
            if number == block_count and self._prefetcher is not None:
                self._start_all(following)
            batches = {size: rebatcher.push(block) for size, rebatcher in rebatchers.items()}
            self._score(tasks, pass_sizes, batches, check, attack)
        batches = {size: rebatcher.flush() for size, rebatcher in rebatchers.items()}
        self._score(tasks, pass_sizes, batches, check, attack)

        def finish() -> UnitResult:
            with numerics(self.plan.precision):
                check.check()
                return UnitResult(unit, rows=tuple(task.row(unit) for task in tasks))

        return finish

    def _start_all(self, units: Sequence[Unit]) -> None:
        """Start those that have not been started. Their first blocks are made one after the other.

        One is enough if its images are several blocks. One that cannot be started raises its error when it is its turn.
        """
        for unit in units:
            if not isinstance(unit, SplitUnit):
                continue
            started = next((each for each in self._started if each.unit is unit), None)
            if started is None:
                try:
                    started = self._start(unit)
                except Exception:
                    return
                self._started.append(started)
            if started.block_count > 1:
                return

    def _start(self, unit: SplitUnit) -> _StartedUnit:
        tasks = [self._task(cell, unit) for cell in unit.cells]
        pass_sizes = {key: self.cache.pass_size(key) for task in tasks for key in task.predictors}
        size = self._block_size([key.model for key in pass_sizes], list(pass_sizes.values()))
        blocks = self.stream(unit.split, unit.order, unit.seed, size)
        return _StartedUnit(unit, tasks, pass_sizes, blocks, -(-self.source.stream_length(unit.split) // size))

    def _task(self, cell: Cell, unit: SplitUnit) -> _CellTask:
        attack = attack_of(unit.order)
        fitted = {
            (fit.model, fit.what): fit.value
            for fit in unit.fits
            if (fit.strategy, fit.batch_size) == (cell.strategy, cell.batch_size)
        }
        members = self.members[cell.model] if is_ensemble(cell.method) else [cell.model]
        setting = self._setting(cell.strategy)
        # Without adaptation the batch size changes nothing: predict once for all sizes. In attacked batches it decides
        # which images are scored.
        size = self.plan.largest_batch if setting.is_identity and attack is None else cell.batch_size
        predictors = [
            PredictorKey(
                member,
                setting,
                size,
                fitted[member, "eps"] if setting.eps == "tuned" else setting.eps,
                attack is not None,
            )
            for member in members
        ]
        arguments = {"value": fitted[cell.model, "temperature"]} if needs_fit(cell.method) else {}
        make_scores = CellScores if attack is None else partial(AttackedScores, attack, size)
        scores = make_scores(
            self.cache.model(members[0]).description.classes,
            bins=self.plan.ece_bins,
            diagram_bins=self.plan.diagram_bins,
            auc=self.source.has_auc,
            hits=self.plan.hits,
            labelled=self.source.is_labelled(unit.split),
            predictions=self.plan.keeps_predictions,
        )
        return _CellTask(cell, predictors, find_method(cell.method, **arguments), scores)

    def _setting(self, strategy: str) -> Setting:
        """The parsed strategy. The plan has parsed its own; a unit that was made by hand may have others."""
        return self.plan.settings.get(strategy) or Setting.parse(strategy)

    def _block_size(self, models: Sequence[str], pass_sizes: list[int]) -> int:
        """How many images to corrupt at a time; on a CPU enough batches for all cores."""
        values = self.cache.model(models[0]).description.preprocessing.values
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
        """Fit a temperature or an eps on the validation data, shuffled, in batches of the size that it is for."""
        value = self._tuned_eps(unit) if unit.what == "eps" else self._temperature(unit)
        return Fit(unit.model, unit.strategy, unit.batch_size, unit.what, value)

    def _temperature(self, unit: FitUnit) -> float:
        """Predicts a block of batches at a time and keeps only the logits."""
        key = PredictorKey(unit.model, self._setting(unit.strategy), unit.batch_size, unit.eps)
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
        return on_one_core(lambda: Temperature.fit(torch.cat(logits), labels=torch.cat(labels))).value

    def _tuned_eps(self, unit: FitUnit) -> float | None:
        setting, batches = self._setting(unit.strategy), self._validation_batches(unit.batch_size)

        def tune() -> float | None:
            with casting(self.plan.precision, self.device):
                return tune_eps(
                    self.cache.model(unit.model),
                    batches,
                    strategy=setting.strategy,
                    layers=setting.layers,
                    bins=self.plan.ece_bins,
                ).eps

        return on_one_core(tune)
