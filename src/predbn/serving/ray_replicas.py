"""The replicas of a server on a Ray cluster: how they are started, called and ended.

Every replica is a Ray Serve application with a single process, so that a request reaches exactly the replica that it is
sent to, and waits while that one is restarted. (Within one deployment the routers of Ray Serve only prefer a replica
for a session, and by default take another if it is busy.)
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any

from torch import nn

from predbn.common import ServingError, first_line, lock_folder, needs_extra
from predbn.evaluation import connect_to_ray
from predbn.norm import Strategy, adapted, device_of

from .errors import RequestError
from .model_spec import ModelSpec
from .ray_replica import Replica
from .settings import Settings
from .stream_folder import STREAMS, check_replicas

_MAX_ONGOING = 1000
"""Concurrent requests of a replica; more wait in the process of the server."""
_HEALTH_CHECK_SECONDS = 1.0
"""How often Ray Serve checks whether a replica is alive."""
_SHUTDOWN_POLL_SECONDS = 0.1
"""How often a replica that shuts down checks whether it has requests left."""

_log = logging.getLogger("predbn.serving")


class Replicas:
    """`count` replicas, started by the constructor and ended by `close`.

    They share the folder `settings.state`, which stays locked until `close`. So replicas of this folder that a killed
    server has left behind can be ended first. `address` is that of `RayEngine`.
    """

    def __init__(
        self,
        count: int,
        model: nn.Module,
        strategy: Strategy,
        spec: ModelSpec,
        settings: Settings,
        *,
        address: str = "auto",
        log_level: str = "info",
    ) -> None:
        if count < 1:
            raise ServingError(f"replicas must be at least 1, got {count}.")
        if settings.state is None:
            raise ServingError("replicas need state=, a folder that all nodes share.")
        folder = settings.state.resolve()
        device = device_of(model)
        self._device = "cpu" if device is None else device.type  # Ray chooses which GPU
        self._prefix = f"predbn-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}-"
        with ExitStack() as opened:
            opened.enter_context(lock_folder(folder, error=ServingError))
            has_connected = connect_to_ray(address)
            self._ray: Any = import_module("ray")
            if has_connected:
                opened.callback(self._ray.shutdown)
            self._serve = _import_serve()
            self._check_resources(count)
            self._serve.start(proxy_location="Disabled")  # HTTP is answered by the server
            self._end_applications()
            check_replicas(folder)
            with adapted(model, strategy, store=folder / STREAMS):  # refuses a folder of another model
                pass
            opened.callback(self._end_applications)
            self._model = self._put(model)
            shared = replace(settings, state=folder, token=None, host="127.0.0.1")
            self._handles = self._start(count, strategy, spec, shared, log_level)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """End the replicas. Changes since their last checkpoint are lost, unless they were stopped before."""
        self._opened.close()

    async def ask(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of a replica's service. Raises a RequestError if the replica dies meanwhile."""
        response = self._handles[number].call.remote(method, *arguments)
        try:
            answer = await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        except self._ray.exceptions.RayTaskError:
            raise  # a bug
        except (self._ray.exceptions.RayError, self._serve.exceptions.RayServeException) as error:
            _log.warning("replica lost", extra={"replica": number, "reason": first_line(error)})
            raise RequestError(
                503, f"replica {number} has died and is being restarted: send the request again.", retry_after=1
            ) from None
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def _check_resources(self, count: int) -> None:
        """Refuse what the cluster cannot run: Ray would wait for a node forever."""
        unit = "GPU" if self._device == "cuda" else "CPU"
        available = int(self._ray.cluster_resources().get(unit, 0))
        if available < count:
            raise ServingError(
                f"the Ray cluster has {available} {unit}, but {count} replicas need one each: add nodes or use fewer "
                "replicas."
            )

    def _put(self, model: nn.Module) -> Any:
        """Put the model into Ray's object store, from which every replica reads it."""
        try:
            return self._ray.put(model.cpu())
        except Exception as error:
            raise ServingError(
                f"the model cannot be sent to other processes ({first_line(error)}): make it picklable."
            ) from None

    def _start(self, count: int, strategy: Strategy, spec: ModelSpec, settings: Settings, log_level: str) -> list[Any]:
        """Start the replicas, wait for them, and return their handles."""
        deployment = self._serve.deployment(Replica).options(
            num_replicas=1,
            max_ongoing_requests=_MAX_ONGOING,
            health_check_period_s=_HEALTH_CHECK_SECONDS,
            graceful_shutdown_wait_loop_s=_SHUTDOWN_POLL_SECONDS,
            ray_actor_options={"num_cpus": 0, "num_gpus": 1} if self._device == "cuda" else {"num_cpus": 1},
        )
        arguments = [self._model], strategy, spec, settings, self._device, log_level
        targets = [
            self._serve.RunTarget(deployment.bind(number, *arguments), f"{self._prefix}{number}", route_prefix=None)
            for number in range(count)
        ]
        try:
            handles: list[Any] = self._serve.run_many(targets)
        except RuntimeError as error:
            raise ServingError(
                f"the replicas cannot be started ({self._why_not_started() or first_line(error)}): predbn and the code "
                "of the model must be installed on every node; the logs of Ray say more."
            ) from None
        return handles

    def _why_not_started(self) -> str:
        """The last line of the traceback of a replica, or an empty string."""
        for name, application in self._serve.status().applications.items():
            for deployment in application.deployments.values():
                if name.startswith(self._prefix) and deployment.message:
                    return str(deployment.message.strip().splitlines()[-1]).rstrip(".")
        return ""

    def _end_applications(self) -> None:
        """End all replicas of the folder."""
        for name in self._serve.status().applications:
            if name.startswith(self._prefix):
                self._serve.delete(name)


def _import_serve() -> Any:
    with needs_extra("serve-ray"):
        serve: Any = import_module("ray.serve")
    logger = logging.getLogger("ray.serve")  # its own handlers do not write JSON
    logger.handlers, logger.propagate = list(_log.handlers), False
    logger.setLevel(logging.WARNING)
    return serve
