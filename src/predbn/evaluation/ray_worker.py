"""One worker of a Ray cluster: a process that holds the data and the models of a plan, and does its units."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from predbn.common import hardware_of, versions

from .engines import check_device
from .ray_payload import Payload
from .units import Unit, UnitResult
from .worker import Worker

__all__ = ["Greeting", "RayWorker"]


class Greeting(NamedTuple):
    """What a worker says of itself when it is ready."""

    hardware: dict[str, Any]
    versions: dict[str, str]


class RayWorker:
    """An actor. It opens its cargo in a call of its own, so that what goes wrong there comes back as an error."""

    def __init__(self, device: str, cpus: int) -> None:
        torch.set_num_threads(max(1, cpus))
        self._device = device
        self._worker: Worker | None = None

    def open(self, cargo: Payload) -> Greeting:
        """Get ready for units."""
        check_device(self._device)
        self._worker = cargo.open(self._device)
        return Greeting(hardware_of(self._device), versions())

    def do(self, unit: Unit) -> UnitResult:
        """The result of a unit."""
        assert self._worker is not None
        return self._worker.do(unit)
