"""Carry out a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predbn.common import EvaluationError, ProgressWithNote, hardware_of, showing_progress, write_json, write_text
from predbn.data import Images, Rows
from predbn.models import AnyModel

from .card import check_same, joined, make_card
from .engines import Engine, InProcess
from .examples import add_examples
from .job import Job
from .plan import Plan
from .plan_file import write_plan
from .results import Results
from .source import AnyData
from .store import CARD, Store
from .units import FitUnit, Unit


def evaluate(
    plan: Plan,
    out: str | Path,
    *,
    engine: Engine | None = None,
    data: AnyData | None = None,
    validation: Images | Rows | None = None,
    models: Mapping[str, AnyModel] | None = None,
    progress: bool | ProgressWithNote | None = True,
) -> Results:
    """Compute what a plan asks for and the folder `out` does not have yet, and return everything in the folder.

    A run may be killed at any moment and started again with the same arguments: what is finished is kept, and the
    final tables are those of an uninterrupted run. `data`, `validation` and `models` (by their names in the plan) are
    objects in memory that replace what the plan names. `engine` says where units are computed, by default in this
    process on the CPU. `progress` is whether to show a bar, or a function that is called with how much is done, how
    much there is, and what was done last.
    """
    engine = engine or InProcess()
    with showing_progress(progress, "evaluating") as report:
        decoded = None if report is None else lambda done, total: report(done, total, "pictures decoded")
        job = Job(plan, engine.device, data, validation, dict(models or {}), progress=decoded)
        with open_run(job, out, engine) as run:
            run.write_card()
            units = _Units(run, report)
            units.compute(units.missing_fits())
            units.compute(job.split_units(run.store.fits(), run.done()))
            run.store.merge()
            run.write_examples()
            run.write_card()
    return Results.load(out)


@dataclass(frozen=True)
class Run:
    """An open run: nobody else writes to its folder, and its context fits the results that are there."""

    job: Job
    engine: Engine
    store: Store
    context: Mapping[str, Any]

    def done(self) -> set[tuple[Any, ...]]:
        """The cells that are finished: they have everything that the plan wants."""
        plan = self.job.plan
        return self.store.done(hits=plan.hits, predictions=plan.keeps_predictions)

    def write_card(self) -> None:
        """Write plan.toml and card.json; the card has the fits that were found so far."""
        hardware = getattr(self.engine, "hardware", None)
        known = hardware_of(self.engine.device) if hardware is None else hardware()
        card = make_card(self.job.plan, self.context, known, self.store.fits())
        write_text(self.store.folder / "plan.toml", write_plan(self.job.plan))
        write_json(self.store.folder / CARD, card)

    def write_examples(self) -> None:
        """Keep a picture of each shift that has none yet, or a stronger one."""
        known = self.store.examples()
        examples = add_examples(known, self.job.source, self.job.splits)
        if not examples.equals(known):
            self.store.write_examples(examples)


@contextmanager
def open_run(job: Job, out: str | Path, engine: Engine) -> Iterator[Run]:
    """Open the folder of a run for writing.

    If it has results of another context (other models, other data), or of one that is not known because the card is
    missing, that is an error, and nothing is changed.
    """
    store = Store(out)
    context = json.loads(json.dumps(job.context()))
    with store.writing():
        before = store.card()
        if before is None and not store.is_empty:
            raise EvaluationError(
                f"{out} has results, but no {CARD} that says what was measured: restore it, or choose another --out."
            )
        if before is not None:
            check_same(str(out), before, context)
            context = joined(before, context)
        yield Run(job, engine, store, context)


class _Units:
    """Gives units to the engine, stores their results, and reports progress."""

    def __init__(self, run: Run, progress: ProgressWithNote | None) -> None:
        self._engine, self._job, self._store, self._progress = run.engine, run.job, run.store, progress
        self._total, self._done = len(self.missing_fits()) + len(run.job.split_units([], run.done())), 0
        self._report("")

    def missing_fits(self) -> list[FitUnit]:
        """The temperatures that are not fitted yet."""
        fitted = {FitUnit(*fit[:3]) for fit in self._store.fits()}
        return [unit for unit in self._job.temperature_units() if unit not in fitted]

    def compute(self, units: Sequence[Unit]) -> None:
        """Compute and store all of them."""
        for result in self._engine.run(self._job, units):
            self._store.add(result)
            self._done += 1
            self._report(result.unit.label)

    def _report(self, label: str) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, label)
