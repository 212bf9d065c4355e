"""The server without HTTP: requests go to the batcher, batches to the predictor, changed streams to the disk.

The model has a thread of its own, and so has the disk: a slow disk does not keep predictions waiting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch
from torch import nn

from predbn.norm import Strategy, adapt, save_streams

from .batcher import Batcher, BatchReport
from .errors import RequestError, late_prediction
from .metrics import MOST_STREAMS, Metrics
from .model_spec import ModelSpec
from .predictor import Predictor
from .settings import Settings
from .stream_folder import NoStore, StreamFolder, identity_of
from .stream_record import StreamRecord
from .work import Prediction, Work

R = TypeVar("R")


_log = logging.getLogger("predbn.serving")


class AnyService(Protocol):
    """What the HTTP interface needs: a `Service`, or a `RayService`, which has several of them."""

    spec: ModelSpec
    settings: Settings
    metrics: Metrics

    @property
    def strategy(self) -> Strategy: ...

    @property
    def device(self) -> torch.device | None: ...

    @property
    def is_ready(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def infer(self, work: Work) -> Prediction: ...

    async def overview(self) -> dict[str, Any]: ...

    async def details(self, id: str) -> dict[str, Any] | None: ...

    async def forget(self, id: str) -> bool: ...

    async def metrics_text(self) -> bytes: ...


class Service:
    """One served model: `await start()`, `await infer(…)` from many tasks, `await stop()`."""

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        spec: ModelSpec,
        settings: Settings,
        *,
        replica: int | None = None,
    ) -> None:
        self.spec, self.settings = spec, settings
        self.metrics = Metrics()
        records: dict[str, StreamRecord] = {}
        self._folder: StreamFolder | None = None
        if settings.state is not None and strategy.keeps_state:
            self._folder = StreamFolder(settings.state, identity_of(model, strategy), records, replica)
        adapt(model, strategy, max_streams=settings.max_streams, store=self._folder or NoStore())
        self.predictor = Predictor(
            model,
            strategy,
            records,
            max_streams=settings.max_streams,
            keeps_unsaved=self._folder is not None,
            on_event=self._count_event,
        )
        self.metrics.streams.set_function(lambda: len(records))
        self.metrics.watch_streams(self.newest_streams)
        self._model_thread = ThreadPoolExecutor(1, "predbn-model")
        self._disk_thread = ThreadPoolExecutor(1, "predbn-disk")
        self._batcher: Batcher | None = None
        self._is_stopping = asyncio.Event()
        self._checkpoints: asyncio.Task[None] | None = None
        self.started = time.time()
        self.rows = 0

    @property
    def strategy(self) -> Strategy:
        return self.predictor.strategy

    @property
    def device(self) -> torch.device | None:
        return self.predictor.device

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted."""
        return self._batcher is not None

    async def start(self) -> None:
        """Begin to predict."""
        settings = self.settings
        batcher = self._batcher = Batcher(
            lambda works: self._on_model_thread(lambda: self.predictor.predict(works)),
            max_wait=settings.max_wait,
            max_batch=settings.max_batch,
            max_queue=settings.max_queue,
            one_per_stream=self.predictor.strategy.keeps_state,
            report=self._report,
        )
        self.metrics.queue.set_function(lambda: batcher.rows_waiting)
        if self._folder is not None:
            self._checkpoints = asyncio.create_task(self._save_regularly())

    async def stop(self) -> None:
        """Predict what is in the queue, save all streams, and end."""
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            await batcher.close()
        self._is_stopping.set()
        if self._checkpoints is not None:
            await asyncio.wait([self._checkpoints])  # whatever has happened to it, the streams are saved now
        if self._folder is not None:
            await self.checkpoint()
            self._folder.close()
        _log.info("stopped")
        self._model_thread.shutdown()
        self._disk_thread.shutdown()

    async def infer(self, work: Work) -> Prediction:
        """The prediction of one request."""
        if self._batcher is None:
            raise RequestError(503, "the server is shutting down: send the request again.", retry_after=5)
        try:
            return await asyncio.wait_for(self._batcher.submit(work), self.settings.timeout)
        except asyncio.TimeoutError:
            raise late_prediction(self.settings.timeout) from None

    def newest_streams(self, most: int = MOST_STREAMS) -> list[StreamRecord]:
        """The streams in memory that were used last, the newest first."""
        return list(self.predictor.records.values())[: -most - 1 : -1]

    async def overview(self) -> dict[str, Any]:
        """What the list of streams says: the streams used last, and how many there are in memory."""
        return {
            "model": self.spec.name,
            "strategy": str(self.strategy),
            "since": self.started,
            "rows": self.rows,
            "count": len(self.predictor.records),
            "streams": [record.summary() for record in self.newest_streams()],
        }

    async def details(self, id: str) -> dict[str, Any] | None:
        """All that is known about a stream; None if nothing is."""
        record = await self.stream(id)
        return None if record is None else record.details(self.predictor.layers)

    async def metrics_text(self) -> bytes:
        """What Prometheus reads."""
        return self.metrics.text()

    async def stream(self, id: str) -> StreamRecord | None:
        """What is known about a stream; None if nothing is."""
        record, folder = self.predictor.records.get(id), self._folder
        if record is None and folder is not None:
            record = await self._on_disk_thread(lambda: folder.record(id))
        return record

    async def forget(self, id: str) -> bool:
        """Forget a stream; False if it is not known."""
        is_known = await self._on_model_thread(lambda: self.predictor.forget(id))
        if is_known:
            self._count_event("forgotten")
        return is_known

    async def checkpoint(self) -> None:
        """Save the streams that have changed. What cannot be saved is tried again at the next checkpoint."""
        begin = time.perf_counter()
        try:
            # A list, because the model thread changes the dictionary meanwhile.
            changed = sum(record.is_changed for record in list(self.predictor.records.values()))
            await self._on_disk_thread(lambda: save_streams(self.predictor.model))
        except Exception as error:
            self.metrics.checkpoints.labels("failed").inc()
            is_bug = not isinstance(error, OSError)
            _log.error("checkpoint failed", extra={"reason": str(error)}, exc_info=error if is_bug else None)
            return
        self.metrics.checkpoints.labels("succeeded").inc()
        if changed:
            _log.info("checkpoint", extra={"streams": changed, "seconds": round(time.perf_counter() - begin, 3)})

    async def _save_regularly(self) -> None:
        while not self._is_stopping.is_set():
            try:
                await asyncio.wait_for(self._is_stopping.wait(), self.settings.checkpoint_every)
            except asyncio.TimeoutError:
                await self.checkpoint()

    async def _on_model_thread(self, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._model_thread, function)

    async def _on_disk_thread(self, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._disk_thread, function)

    def _count_event(self, event: str) -> None:
        self.metrics.events.labels(event).inc()

    def _report(self, report: BatchReport) -> None:
        self.rows += report.rows
        self.metrics.count_batch(report)
        _log.debug(
            "batch", extra={"rows": report.rows, "requests": len(report.waited), "seconds": round(report.seconds, 4)}
        )
