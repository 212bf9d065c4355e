"""Engines compute units, here or elsewhere. Whatever the engine, only the run that started it writes results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from predbn.common import parse_device

from .job import Job
from .units import Unit, UnitResult


class Engine(Protocol):
    """Computes units anywhere and yields their results as they finish, in any order.

    `job.worker` opens data and models once per process; `job.worker.run(units)` computes units. Jobs and units can be
    pickled. `device` is the device on which units are computed, as torch writes it. An engine that computes on other
    machines has a method `hardware`, whose plain data goes into the run card.
    """

    device: str

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """The result of every unit, in any order."""


class InProcess:
    """Computes one unit after another in this process, on the `device`: "cpu", "cuda", "cuda:1" or "auto"."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = str(parse_device(device))

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        return job.worker.run(units)
