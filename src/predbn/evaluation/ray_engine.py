"""The engine for several machines: the units of a plan on a Ray cluster.

Ray starts processes on other machines, ships every object to a node once, and notices when a process or a node dies.
This module connects to the cluster; `ray_pool` runs the workers. Ray is imported only when an engine is made.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from predbn.common import EvaluationError, needs_extra

from .job import Job
from .ray_payload import put_payload
from .ray_pool import WorkerPool, WorkerResources
from .units import Unit, UnitResult

_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")
_CONNECT_SECONDS = 5.0
_LOCAL_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""For a cluster that is started here: no usage statistics are sent, and workers have the priority of this process."""
_ADVICE = "start one with `ray start --head`, give another --address, or use --address local for this machine alone."


class RayEngine:
    """Computes units on the nodes of a Ray cluster; values are those of `InProcess` on the same device.

    address          "auto" (the cluster that this machine is a node of, or $RAY_ADDRESS), "host:port", or "local"
                     to start a cluster on this machine alone and to stop it with the engine. If this process is
                     already connected to a cluster, that connection is used and kept.
    device           "cpu", "cuda", or "auto" (cuda if a node has GPUs)
    cpus_per_worker  cores of a worker; by default a whole node, or with GPUs an equal share of one
    gpus_per_worker  GPUs of a worker, for the device cuda; with 0.5, two workers share one
    retries          how many times a unit may be lost with its worker before the run gives up

    Every node needs the same version of predbn as this machine, and the code of your own models: install them there,
    or call `ray.init` with a suitable `runtime_env` first. Images and models are sent to the nodes; the published
    CIFAR-10-C and ImageNet-C are not, and every node reads them from the same path. Use the engine in a `with` block,
    or call `close`.
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
            raise EvaluationError(f"device {device!r} is not one of cpu, cuda and auto: Ray chooses which GPU.")
        WorkerResources("cpu", cpus_per_worker, gpus_per_worker)  # refuses wrong values before it connects
        self._disconnect_on_close = connect_to_ray(address)
        self._ray: Any = import_module("ray")
        if device == "auto":
            device = "cuda" if self._ray.cluster_resources().get("GPU") else "cpu"
        self.device = device
        self._resources, self._retries = WorkerResources(device, cpus_per_worker, gpus_per_worker), retries
        self._job: Job | None = None
        self._pool: WorkerPool | None = None

    def run(self, job: Job, units: Sequence[Unit]) -> Iterator[UnitResult]:
        """Yield results as they finish. The workers are kept for further units of the same job."""
        if not units:
            return iter(())
        if self._pool is None or self._job is not job:
            self._close_pool()
            self._job, self._pool = job, WorkerPool(put_payload(job), self._resources, self._retries)
        return self._pool.run(units)

    def hardware(self) -> dict[str, Any]:
        """The kinds of machines that the workers have run on, for the run card."""
        kinds = self._pool.hardware() if self._pool is not None else []
        return {"engine": "ray", **(kinds[0] if len(kinds) == 1 else {"kinds": kinds})}

    def close(self) -> None:
        """Stop the workers, and disconnect from the cluster if this engine connected to it."""
        self._close_pool()
        if self._disconnect_on_close:
            self._ray.shutdown()
            self._disconnect_on_close = False

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()
        self._job = self._pool = None


def connect_to_ray(address: str) -> bool:
    """Connect this process to a cluster; False if it is connected already. Addresses are those of `RayEngine`."""
    with needs_extra("ray", otherwise="leave out --engine ray"):
        import ray
    if ray.is_initialized():
        return False
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    answers = False
    if address == "local":
        for name, value in _LOCAL_ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        options["include_dashboard"] = False
    else:
        answers = check_reachable(os.environ.get("RAY_ADDRESS") or address if address == "auto" else address)
    try:
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        if answers:
            raise EvaluationError(
                f"the Ray cluster at {address} answers, but refuses the connection ({reason}): use its versions of Ray "
                "and Python and, if it wants a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as there."
            ) from None
        raise _no_cluster(address, reason) from None
    return True


def check_reachable(address: str) -> bool:
    """Refuse an address without a Ray cluster at once: `ray.init` itself retries for minutes.

    Returns whether a cluster answers; it can still refuse the connection, for example without the right token.
    """
    if address in ("auto", "local"):
        return False
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise EvaluationError(f"{address!r} is not the address of a Ray cluster: write auto, local or host:port.")
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), _CONNECT_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, error.strerror or str(error)) from None
    if os.environ.get("RAY_USE_TLS", "0") == "0" and not _is_healthy(address):
        raise _no_cluster(address, "something else does")
    return True


def _is_healthy(address: str) -> bool:
    """Whether a Ray head node answers the standard health check of gRPC; one that wants a token answers too."""
    import grpc

    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=_CONNECT_SECONDS)
        except grpc.RpcError as error:
            return error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    return True


def _no_cluster(address: str, reason: str) -> EvaluationError:
    where = "was found" if address == "auto" else f"answers at {address}"
    return EvaluationError(f"no Ray cluster {where} ({reason}): {_ADVICE}")
