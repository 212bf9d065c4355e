"""The engine for more than one machine: the plan's units on a Ray cluster.

Ray, because starting processes on many machines, a store of objects that each of them fetches once, and knowing when
one is gone are what it does. This is the one place that connects to it, and nothing else here needs it installed.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from predbn.common import EvaluationError

from .job import Job
from .ray_nodes import Share
from .ray_payload import put_payload
from .ray_pool import Crew
from .units import Unit, UnitResult

__all__ = ["RayEngine"]

_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")
_ANSWERS_WITHIN = 5.0
_LOCAL = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""For a cluster of our own: it tells nobody about itself, and its workers have the priority that this process has."""


class RayEngine:
    """Units on the nodes of a Ray cluster, in any number; values are those of `InProcess` on the same device.

    address          "auto" (the cluster that this machine is a node of, or $RAY_ADDRESS), "host:port", or "local"
                     for a cluster of this machine alone that is started here and stopped with the engine. A process
                     that is connected to Ray already stays connected as it is.
    device           "cpu", "cuda", or "auto": cuda where a node has GPUs
    cpus_per_worker  cores for a worker; a whole node unless given, or with GPUs an equal part of one
    gpus_per_worker  GPUs for a worker, on the device cuda; 0.5 makes two workers share one
    retries          how often a unit may be lost with its worker before the run gives up

    Every node needs predbn, in the version of this machine, and whatever models of your own are made of: install them
    there, or connect with a `runtime_env` of your choice first. Images and models travel; the published CIFAR-10-C
    and ImageNet-C are read by every node at the same path. Use it in a `with` block, or call `close`.
    """

    def __init__(
        self,
        address: str = "auto",
        *,
        device: str = "auto",
        cpus_per_worker: int | None = None,
        gpus_per_worker: float = 1,
        retries: int = 3,
    ) -> None:
        if device not in ("cpu", "cuda", "auto"):
            raise EvaluationError(f"device {device!r} is none of cpu, cuda and auto: Ray chooses which GPU.")
        Share("cpu", cpus_per_worker, gpus_per_worker)
        self._ray = _installed()
        self._is_mine = _connect(self._ray, address)
        self.device = device
        if device == "auto":
            self.device = "cuda" if self._ray.cluster_resources().get("GPU") else "cpu"
        self._share, self._retries = Share(self.device, cpus_per_worker, gpus_per_worker), retries
        self._job: Job | None = None
        self._crew: Crew | None = None

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """The results as they come. Workers stay for further units of the same job."""
        if not units:
            return iter(())
        if self._crew is None or self._job is not job:
            self._dismiss()
            self._job, self._crew = job, Crew(put_payload(job), self._share, self._retries)
        return self._crew.do(units)

    def hardware(self) -> dict[str, Any]:
        """The kinds of machines that the workers were on."""
        kinds = self._crew.hardware() if self._crew is not None else []
        return {"engine": "ray", **(kinds[0] if len(kinds) == 1 else {"kinds": kinds})}

    def close(self) -> None:
        """Let the workers go, and leave the cluster if the engine had joined it."""
        self._dismiss()
        if self._is_mine:
            self._ray.shutdown()
            self._is_mine = False

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _dismiss(self) -> None:
        if self._crew is not None:
            self._crew.close()
        self._job = self._crew = None


def _installed() -> Any:
    try:
        import ray
    except ImportError:
        raise EvaluationError(
            "Ray is not installed: run `pip install predbn[ray]`, or leave out --engine ray."
        ) from None
    return ray


def _connect(ray: Any, address: str) -> bool:
    """Join the cluster; False if this process was in one."""
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        for name, value in _LOCAL.items():
            os.environ.setdefault(name, value)
        quiet["include_dashboard"] = False
    else:
        _knock(os.environ.get("RAY_ADDRESS") or address if address == "auto" else address)
    try:
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise EvaluationError(f"{_nobody(address)} ({reason}): {_ADVICE}") from None
    return True


def _knock(address: str) -> None:
    """Refuse an address where no such server listens: Ray itself takes minutes to find out."""
    if address in ("auto", "local"):
        return
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise EvaluationError(f"{address!r} is no address of a Ray cluster: write auto, local or host:port.")
    try:
        with socket.create_connection((parts["host"].strip("[]"), int(parts["port"])), _ANSWERS_WITHIN) as line:
            reason = "something else does" if not _speaks_http2(line) else ""
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    if reason:
        raise EvaluationError(f"{_nobody(address)} ({reason}): {_ADVICE}")


def _speaks_http2(line: socket.socket) -> bool:
    """Whether the other side greets as gRPC does: to the preface of HTTP/2 and empty settings, with its settings."""
    if os.environ.get("RAY_USE_TLS", "0") != "0":
        return True
    settings = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
    return line.recv(len(settings))[3:4] == settings[3:4]


def _nobody(address: str) -> str:
    return "no Ray cluster was found" if address == "auto" else f"no Ray cluster answers at {address}"


_ADVICE = "start one with `ray start --head`, give another --address, or use --address local for this machine alone."
