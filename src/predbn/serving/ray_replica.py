"""One of the replicas of a server on Ray: a service without HTTP, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from prometheus_client.core import Metric

from predbn.norm import Strategy

from .errors import RequestError
from .logs import log_as_json
from .model_spec import ModelSpec
from .service import Service
from .settings import Settings
from .work import Prediction, Work


class Replica:
    """The class that Ray Serve deploys. Ray Serve makes it anew, maybe on another node, when its process dies.

    `number` says which streams are its own, see `RayService`. Those that an earlier process of this number has saved
    are read from the folder when they are asked for.
    """

    async def __init__(  # type: ignore[misc]  # Ray Serve awaits it
        self,
        number: int,
        model: Sequence[Any],
        strategy: Strategy,
        spec: ModelSpec,
        settings: Settings,
        device: str,
        log_level: str,
    ) -> None:
        log_as_json(log_level)
        ray: Any = import_module("ray")
        (reference,) = model  # into Ray's object store; inside of a list, so that it is not replaced by the model
        self._service = Service(ray.get(reference).to(device), strategy, spec, settings, replica=number)
        await self._service.start()

    async def infer(self, work: Work) -> Prediction | RequestError:
        """A prediction, or why there is none. An exception would come back as one of Ray's."""
        try:
            return await self._service.infer(work)
        except RequestError as error:
            return error

    async def overview(self) -> dict[str, Any]:
        return await self._service.overview()

    async def details(self, id: str) -> dict[str, Any] | None:
        return await self._service.details(id)

    async def forget(self, id: str) -> bool:
        return await self._service.forget(id)

    async def metrics(self) -> list[Metric]:
        return self._service.metrics.families()

    async def stop(self) -> None:
        """Predict what is in the queue, and save all streams."""
        await self._service.stop()
