"""One of the replicas of a server on Ray: a service without HTTP, in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from predbn.norm import Strategy

from .errors import RequestError
from .logs import log_as_json
from .model_spec import ModelSpec
from .service import Service
from .settings import Settings


class Replica:
    """The class that Ray Serve deploys, and restarts, maybe on another node, when its process dies.

    `number` determines its streams, see `RayService`. Those that an earlier process of this number has saved are read
    from the folder at their next request.
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
        (reference,) = model  # in a list, because Ray replaces a reference that is an argument by its object
        self._service = Service(ray.get(reference).to(device), strategy, spec, settings, replica=number)
        await self._service.start()

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the service. A RequestError is returned: Ray would wrap an exception in one of its own."""
        try:
            return await getattr(self._service, method)(*arguments)
        except RequestError as error:
            return error
