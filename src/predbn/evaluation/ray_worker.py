"""What runs in a worker process of a Ray cluster, and what that process reports about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from predbn.common import EvaluationError, hardware_of, package_versions, parse_device

from .ray_payload import Payload
from .units import Unit, UnitResult
from .worker import Worker


class WorkerInfo(NamedTuple):
    """What a worker reports about itself when it is ready."""

    hardware: dict[str, Any]
    versions: dict[str, str]


class RayWorker:
    """The actor: one process that computes units.

    The payload is opened by a call and not by the constructor, because Ray returns the exception of a call, but only
    the text of an exception of the constructor.
    """

    def __init__(self, device: str, cpus: int) -> None:
        torch.set_num_threads(max(1, cpus))
        self._device = device
        self._worker: Worker | None = None

    def open(self, payload: Payload) -> WorkerInfo:
        """Get ready for units."""
        parse_device(self._device)
        self._worker = payload.open(self._device)
        return WorkerInfo(hardware_of(self._device), package_versions())

    def run(self, unit: Unit) -> UnitResult:
        """Compute a unit."""
        assert self._worker is not None
        return self._worker.do(unit)


def check_versions(address: str, worker_versions: Mapping[str, str]) -> None:
    """Refuse a worker that may compute other values. Builds of one version for CPU and for CUDA count as the same."""
    for package, version in package_versions().items():
        worker_version = worker_versions.get(package, "none")
        if version.partition("+")[0] != worker_version.partition("+")[0]:
            raise EvaluationError(
                f"{address} has {package} {worker_version}, but this machine has {version}: install the same versions "
                "on every node, so that all of them compute the same values."
            )
