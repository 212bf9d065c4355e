"""Who does the units: an engine has one verb.

Whatever the engine, results come to one place, the run, which alone writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Protocol

import torch

from predbn.common import EvaluationError

from .job import Job
from .units import Unit, UnitResult

__all__ = ["Engine", "InProcess", "check_device"]


class Engine(Protocol):
    """Does units anywhere and yields their results as they finish, in any order.

    `job.worker` opens in the process that asks for it what units need, once; `job.worker.do(unit)` does one. A job
    and its units can be pickled. `device` is where units are computed, as torch writes it. An engine that computes
    elsewhere than on this machine has a method `hardware`, whose plain data goes into the run card.
    """

    device: str

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """The results of the units, each once, in any order."""


class InProcess:
    """One unit after another in this process, on the CPU's cores or on one GPU."""

    def __init__(self, device: str = "cpu") -> None:
        check_device(device)
        self.device = device

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """The results, in the order of the units."""
        return (job.worker.do(unit, then) for unit, then in zip_longest(units, units[1:]))


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise EvaluationError(f"{device!r} is no device: use cpu, cuda or cuda:1.") from None
    if kind not in ("cpu", "cuda"):
        raise EvaluationError(f"device {device!r} is not supported: use cpu or cuda.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise EvaluationError("there is no GPU that PyTorch can use here: leave --device out, or say cpu.")
