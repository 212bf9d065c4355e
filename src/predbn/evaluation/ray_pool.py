"""The worker processes of a run on a Ray cluster, and the queue of units that they compute.

Every worker is a Ray actor that keeps the data and the models from unit to unit. An actor that dies is not restarted
(`max_restarts`, `max_task_retries`): a restarted actor may wait for a free node while other workers are idle, Ray
counts restarts per actor and not per unit, and it adds no actors when nodes join. Instead its unit goes back to the
front of the queue, and a new actor starts wherever a node has a free slot.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import itemgetter
from typing import Any, NamedTuple

import torch

from predbn.common import EvaluationError, hardware_of, package_versions, parse_device

from .ray_payload import Payload
from .units import Unit, UnitResult
from .worker import Worker

_POLL_SECONDS = 1.0
"""How long to wait for a result before looking again for nodes that have joined."""

_WARN_SECONDS = 15.0
"""How long to wait for the first worker before telling the user that the cluster is busy."""


@dataclass(frozen=True)
class WorkerResources:
    """The part of a node that one worker gets.

    On the CPU this is the whole node by default: a unit then uses all cores, as it does in one process, and the node
    holds every model once. With GPUs it is `gpus` GPUs and an equal share of the node's cores.
    """

    device: str
    cpus: int | None = None
    gpus: float = 1

    def __post_init__(self) -> None:
        if self.cpus is not None and self.cpus < 1:
            raise EvaluationError(f"cpus_per_worker is {self.cpus}, but a worker needs at least 1.")
        if not (0 < self.gpus <= 1 or (self.gpus > 1 and self.gpus == int(self.gpus))):
            raise EvaluationError(f"gpus_per_worker is {self.gpus}, but it must be a fraction of 1 or an integer.")

    def __str__(self) -> str:
        """What a node must have to run a worker."""
        gpus = f"{self.gpus:g} GPU" if self.device == "cuda" else ""
        cpus = f"{self.cpus or 1} CPU" if self.cpus or not gpus else ""
        return " and ".join(filter(None, (gpus, cpus)))

    def slots(self, node_resources: Mapping[str, float]) -> list[dict[str, float]]:
        """Ray's actor options for every worker that a node with these resources has room for."""
        node_cpus = int(node_resources.get("CPU", 0))
        if self.device == "cuda":
            count = int(node_resources.get("GPU", 0) / self.gpus)
            if self.cpus is not None:
                count = min(count, node_cpus // self.cpus)
            return [{"num_cpus": self.cpus or node_cpus // count, "num_gpus": self.gpus}] * count if count else []
        cpus = self.cpus or max(1, node_cpus)
        return [{"num_cpus": cpus, "num_gpus": 0}] * (node_cpus // cpus)


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


@dataclass(eq=False)
class _Worker:
    """An actor as the pool sees it. Its first call opens the payload; then it is ready, and a call computes a unit."""

    node_id: str
    address: str
    actor: Any
    call: Any
    unit: Unit | None = None
    is_ready: bool = False


class _WorkerLost(Exception):
    """A worker died; the message says where and why."""


class WorkerPool:
    """Workers that all hold the same payload, a reference into Ray's object store.

    The run gives up on a unit that was lost with its worker more than `retries` times, and starts no workers on a node
    where more than `retries` starts in a row have failed.
    """

    def __init__(self, payload: Any, resources: WorkerResources, retries: int) -> None:
        self._ray: Any = import_module("ray")
        self._payload, self._resources, self._retries = payload, resources, retries
        self._workers: list[_Worker] = []
        self._hardware: dict[str, dict[str, Any]] = {}
        self._failed_starts: Counter[str] = Counter()
        self._last_loss = ""
        self._warn_at = time.monotonic() + _WARN_SECONDS

    def hardware(self) -> list[dict[str, Any]]:
        """The kinds of machines that workers have run on, without duplicates."""
        return [hardware for _, hardware in sorted(self._hardware.items())]

    def run(self, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """Compute the units and yield every result once, in the order in which they finish."""
        queue, losses = deque(units), Counter[Unit]()
        try:
            while queue or any(worker.unit is not None for worker in self._workers):
                self._start_workers(len(queue))
                self._assign(queue)
                worker = self._wait()
                if worker is None:
                    continue
                try:
                    result = self._result(worker)
                except _WorkerLost as loss:
                    self._last_loss = str(loss)
                    self._kill(worker)
                    self._requeue(worker, queue, losses)
                    continue
                if result is not None:
                    yield result
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for worker in list(self._workers):
            self._kill(worker)

    def _start_workers(self, queued: int) -> None:
        """Start workers in the free slots of all nodes that are alive now, but no more than there are units for."""
        slots = []
        for node in self._ray.nodes():
            if node["Alive"] and self._failed_starts[node["NodeID"]] <= self._retries:
                running = sum(worker.node_id == node["NodeID"] for worker in self._workers)
                node_slots = enumerate(self._resources.slots(node["Resources"]))
                slots += [(number, node, options) for number, options in node_slots if number >= running]
        slots.sort(key=itemgetter(0))  # every node gets its first worker before any gets its second
        idle = sum(worker.unit is None for worker in self._workers)
        for _, node, options in slots[: max(0, queued - idle)]:
            self._workers.append(self._start(node, options))
        if not self._workers:
            lost = f" any more (the last worker was lost: {self._last_loss})" if self._last_loss else ""
            raise EvaluationError(
                f"the Ray cluster has no node with {self._resources} for a worker{lost}: add one, or ask for less with "
                "--cpus-per-worker or --gpus-per-worker, and run the same command again; finished units are kept."
            )

    def _start(self, node: Mapping[str, Any], options: dict[str, float]) -> _Worker:
        scheduling: Any = import_module("ray.util.scheduling_strategies")
        on_node = scheduling.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        actor_class = self._ray.remote(RayWorker).options(scheduling_strategy=on_node, max_restarts=0, **options)
        actor = actor_class.remote(self._resources.device, int(options["num_cpus"]))
        return _Worker(node["NodeID"], node["NodeManagerAddress"], actor, actor.open.remote(self._payload))

    def _assign(self, queue: deque[Unit]) -> None:
        """Give every idle worker a unit. One that is still starting gets none: its node may be busy for hours."""
        for worker in self._workers:
            if queue and worker.is_ready and worker.unit is None:
                worker.unit = queue.popleft()
                worker.call = worker.actor.run.remote(worker.unit)

    def _wait(self) -> _Worker | None:
        """A worker whose call has ended; None after a second, to look for new nodes again."""
        by_call = {worker.call: worker for worker in self._workers if worker.call is not None}
        ended, _ = self._ray.wait(list(by_call), num_returns=1, timeout=_POLL_SECONDS)
        if ended:
            return by_call[ended[0]]
        if not self._hardware and time.monotonic() > self._warn_at:
            logging.getLogger(__name__).warning("waiting for a node of the cluster with %s free", self._resources)
            self._warn_at = float("inf")
        return None

    def _result(self, worker: _Worker) -> UnitResult | None:
        """The result of the call that has ended; None if the worker has only become ready.

        The call of a lost worker is never read again, so a unit that was requeued cannot give two results.
        """
        errors = self._ray.exceptions
        try:
            answer: WorkerInfo | UnitResult = self._ray.get(worker.call)
        except errors.RayTaskError as error:
            if isinstance(error.cause, ValueError):  # what one process would raise too, such as a PredbnError
                raise error.cause from None
            if isinstance(error.cause, errors.RayError):
                raise _WorkerLost(_reason(worker, error.cause)) from None
            if worker.is_ready:
                raise
            raise EvaluationError(
                f"no worker can be started on {_reason(worker, error.cause)}: predbn must be installed on every node, "
                "or be part of Ray's runtime_env."
            ) from None
        except errors.RayError as error:
            raise _WorkerLost(_reason(worker, error)) from None
        worker.call = worker.unit = None
        if isinstance(answer, UnitResult):
            return answer
        check_versions(worker.address, answer.versions)
        self._hardware[str(answer.hardware)] = answer.hardware
        worker.is_ready = True
        return None

    def _requeue(self, worker: _Worker, queue: deque[Unit], losses: Counter[Unit]) -> None:
        """Put the unit of a lost worker back to the front of the queue, and count the loss."""
        if worker.unit is None:
            self._failed_starts[worker.node_id] += 1
            return
        self._failed_starts[worker.node_id] = 0
        queue.appendleft(worker.unit)
        losses[worker.unit] += 1
        if losses[worker.unit] > self._retries:
            raise EvaluationError(
                f"{worker.unit.label} was lost {losses[worker.unit]} times with its worker, last on {self._last_loss}: "
                "check whether that node runs out of memory, and run the same command again; finished units are kept."
            )

    def _kill(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        if self._ray.is_initialized():
            self._ray.kill(worker.actor)


def _reason(worker: _Worker, error: Exception) -> str:
    """Where it happened, and the first line of what Ray says."""
    text = str(error).strip() or type(error).__name__
    return f"{worker.address} ({text.splitlines()[0].rstrip('.')})"
