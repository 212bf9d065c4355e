"""Engines compute units, here or elsewhere. Whatever the engine, only the run that started it writes results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from predbn.common import parse_device

from .job import Job
from .units import Unit, UnitResult


class Engine(Protocol):
    """Computes units anywhere and yields their results as they finish, in any order.

    `job.worker` opens data and models once in the process that asks for it; `job.worker.do(unit)` computes a unit. Jobs
    and units can be pickled. `device` is the device on which units are computed, as torch writes it. An engine that
    computes on other machines has a method `hardware`; its plain data goes into the run card.
    """

    device: str

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """The result of every unit, in any order."""


_AHEAD = 4
"""For so many units the first images are made ahead on a GPU: some corruptions take the CPU longer than the GPU takes
to predict a split of small images."""


class InProcess:
    """Computes one unit after another in this process, on the CPU or on one GPU."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = str(parse_device(device))

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """The results, in the order of the units.

        On a GPU the next unit begins before the result of one is waited for, so that the GPU always has work.
        """
        if self.device == "cpu":
            yield from map(job.worker.do, units)
            return
        finish: Callable[[], UnitResult] | None = None
        for number, unit in enumerate(units, start=1):
            try:
                begun = job.worker.begin(unit, *units[number : number + _AHEAD])
            except BaseException:
                if finish is not None:  # what was computed is not lost
                    yield finish()
                raise
            if finish is not None:
                try:
                    result = finish()
                except BaseException:
                    yield begun()
                    raise
                yield result
            finish = begun
        if finish is not None:
            yield finish()
