"""A service whose streams are divided among replicas on a Ray cluster.

This process answers HTTP as a server in one process does, and sends the rows of each request to the replica of its
stream, which depends on the name of the stream and the number of replicas alone. All replicas save their streams in
the same folder, so that a restarted replica, or a server with another number of replicas, finds them.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import time
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from prometheus_client.core import Metric
from torch import nn

from predbn.norm import Strategy, device_of

from .errors import RequestError, shutting_down
from .metrics import MAX_STREAMS, Metrics, with_replicas
from .model_spec import ModelSpec
from .ray_replicas import Replicas
from .settings import Settings
from .work import Prediction, Work

R = TypeVar("R")

_OVERVIEW_SECONDS = 2.0
"""A replica that takes longer to list its streams or metrics is left out."""

_log = logging.getLogger("predbn.serving")


def replica_of(stream: str, replicas: int) -> int:
    """The replica of a stream: the one with the largest hash of both (rendezvous hashing).

    With one more replica, only streams that go to the new one change theirs.
    """
    hashes = [hashlib.sha256(f"{number}/{stream}".encode()).digest() for number in range(replicas)]
    return hashes.index(max(hashes))


class RayService:
    """A `Service` with replicas, started by the constructor and ended by `stop` or `close`.

    `options` are those of `Replicas`: address and log_level.
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        spec: ModelSpec,
        settings: Settings,
        *,
        replicas: int = 2,
        **options: Any,
    ) -> None:
        self.strategy, self.spec, self.settings, self.device = strategy, spec, settings, device_of(model)
        self.metrics = Metrics()
        """Counts requests only; the replicas count everything else."""
        self.is_ready = self.is_draining = self.is_saved = False
        self._started, self.replicas = time.time(), replicas
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._replicas = Replicas(replicas, model, strategy, spec, settings, **options)
        self._next_replica = itertools.cycle(range(replicas))

    def close(self) -> None:
        """End the replicas at once."""
        self._replicas.close()

    async def start(self) -> None:
        """Accept requests."""
        self.is_ready, self._loop = True, asyncio.get_running_loop()

    async def abandon(self) -> None:
        """Refuse what is in the queues."""
        await self._ask_all("abandon")

    async def stop(self) -> None:
        """Let the replicas finish their queues and save all streams, then end them."""
        self.is_ready = False
        answers = await self._ask_all("stop", self.settings.timeout)
        self.is_saved = all(answer is True for answer in answers)
        for number, answer in enumerate(answers):
            if isinstance(answer, Exception):
                _log.error("replica not stopped", extra={"replica": number, "reason": str(answer)})
        await asyncio.to_thread(self.close)
        _log.info("stopped")

    async def infer(self, work: Work) -> Prediction:
        """The prediction of one request, by the replica of its stream."""
        if not self.is_ready:
            raise shutting_down()
        stream = work.stream
        number = next(self._next_replica) if stream is None else replica_of(stream, self.replicas)
        async with self._turn(stream):
            prediction: Prediction = await self._replicas.ask(number, "infer", work)
        return prediction

    def _turn(self, stream: str | None) -> AbstractAsyncContextManager[None]:
        """Wait for earlier requests of the stream, if their order matters: Ray may reorder calls."""
        if stream is None or not self.strategy.keeps_state:
            return nullcontext()
        return self._turns.setdefault(stream, asyncio.Lock())

    async def overview(self) -> dict[str, Any]:
        """As `Service.overview`, over all replicas that answer."""
        parts = [part for part in await self._ask_all("overview") if not isinstance(part, Exception)]
        streams = sorted((stream for part in parts for stream in part["streams"]), key=lambda stream: -stream["last"])
        return {
            "model": self.spec.name,
            "strategy": str(self.strategy),
            "since": self._started,
            "rows": sum(part["rows"] for part in parts),
            "count": sum(part["count"] for part in parts),
            "streams": streams[:MAX_STREAMS],
        }

    async def details(self, id: str) -> dict[str, Any] | None:
        """As `Service.details`."""
        details: dict[str, Any] | None = await self._ask_owner(id, "details")
        return details

    async def forget(self, id: str) -> bool:
        """As `Service.forget`."""
        is_known: bool = await self._ask_owner(id, "forget")
        return is_known

    async def metric_families(self) -> list[Metric]:
        """The metrics of all replicas; may be called on any event loop."""
        families: list[Any] = [None] * self.replicas
        if self.is_ready:  # before, the port for health checks answers already
            asked = asyncio.run_coroutine_threadsafe(self._ask_all("metric_families"), self._loop)
            answers = await asyncio.wrap_future(asked)
            families = [None if isinstance(answer, Exception) else answer for answer in answers]
        return with_replicas(self.metrics.families(), families)

    async def _ask_owner(self, stream: str, method: str) -> Any:
        owner = replica_of(stream, self.replicas)
        return await _within(self.settings.timeout, self._replicas.ask(owner, method, stream))

    async def _ask_all(self, method: str, seconds: float = _OVERVIEW_SECONDS) -> list[Any]:
        """The answer of each replica, or an exception."""
        calls = (_within(seconds, self._replicas.ask(number, method)) for number in range(self.replicas))
        return await asyncio.gather(*calls, return_exceptions=True)


async def _within(seconds: float, answer: Awaitable[R]) -> R:
    try:
        return await asyncio.wait_for(answer, seconds)
    except asyncio.TimeoutError:
        error = f"there was no answer within {seconds:g} s: send the request again later."
        raise RequestError(503, error, retry_after=5) from None
