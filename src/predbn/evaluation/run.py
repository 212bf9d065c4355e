"""Carry out a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from predbn.common import hardware_of
from predbn.data import Images, Rows
from predbn.models import AnyModel

from .card import check_same, joined, make_card, to_json
from .engines import Engine, InProcess
from .job import Job
from .plan import Plan
from .plan_file import write_plan
from .results import Results
from .source import AnyData
from .store import Store
from .units import FitUnit, Unit

__all__ = ["Progress", "evaluate"]

Progress = Callable[[int, int, str], object]
"""Called with how many units are done, how many there are, and what was done last."""


def evaluate(
    plan: Plan,
    out: str | Path,
    *,
    engine: Engine | None = None,
    data: AnyData | None = None,
    validation: Images | Rows | None = None,
    models: Mapping[str, AnyModel] | None = None,
    progress: Progress | None = None,
) -> Results:
    """Compute what a plan asks for and what the folder `out` does not hold yet, and give all that is then there.

    It may be killed at any moment and started again with the same arguments: what is finished stays, and the final
    tables are those of an uninterrupted run. `data`, `validation` and `models` (by their names in the plan) are things
    in memory that stand in for what the plan names.
    """
    engine = engine or InProcess()
    told = None if progress is None else partial(_tell_decoded, progress)
    job = Job(plan, engine.device, data, validation, dict(models or {}), report=told)
    store = Store(out)
    context = json.loads(json.dumps(job.context()))
    with store.writing():
        before = store.card()
        if before is not None:
            check_same(str(out), before, context)
            context = joined(before, context)
        store.write_text("plan.toml", write_plan(plan))
        store.write_text("card.json", to_json(make_card(plan, context, _hardware(engine), store.fits())))
        run = _Run(engine, job, store, progress)
        run.compute(run.missing(job.eps_units()))
        run.compute(run.missing(job.temperature_units(store.fits())))
        run.compute(job.split_units(store.fits(), store.done()))
        store.merge()
        store.write_text("card.json", to_json(make_card(plan, context, _hardware(engine), store.fits())))
    return Results.load(out)


def _tell_decoded(progress: Progress, done: int, total: int) -> None:
    progress(done, total, "pictures decoded")


def _hardware(engine: Engine) -> dict[str, Any]:
    told = getattr(engine, "hardware", None)
    return hardware_of(engine.device) if told is None else told()


class _Run:
    """Hands units to the engine, keeps what comes back, and tells how far it is."""

    def __init__(self, engine: Engine, job: Job, store: Store, progress: Progress | None) -> None:
        self._engine, self._job, self._store, self._progress = engine, job, store, progress
        fits = self.missing([*job.eps_units(), *job.temperature_units(store.fits())])
        self._total, self._done = len(fits) + len(job.split_units([], store.done())), 0
        self._tell("")

    def missing(self, units: Sequence[FitUnit]) -> list[FitUnit]:
        """The fits that are not there yet."""
        there = {fit[:4] for fit in self._store.fits()}
        return [unit for unit in units if (unit.model, unit.strategy, unit.batch_size, unit.what) not in there]

    def compute(self, units: Sequence[Unit]) -> None:
        """Do all of them."""
        for result in self._engine.run(self._job, units):
            self._store.add(result)
            self._done += 1
            self._tell(result.unit.label)

    def _tell(self, label: str) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total, label)
