"""The server without HTTP: requests go to the batcher, batches to the predictor, changed streams to the disk.

The model has a thread of its own, and so has the disk: a slow disk does not keep predictions waiting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import nn

from predbn.norm import Strategy, describe

from .batcher import Batcher, BatchReport
from .errors import RequestError
from .metrics import MOST_STREAMS, Metrics
from .model_spec import ModelSpec
from .predictor import Predictor
from .settings import Settings
from .stream_record import StreamRecord
from .stream_store import Snapshot, StreamStore
from .work import Prediction, Work

R = TypeVar("R")

_STREAMS_AT_ONCE = 32

_log = logging.getLogger("predbn.serving")


class Service:
    """One served model: `await start()`, `await infer(…)` from many tasks, `await stop()`."""

    def __init__(self, model: nn.Module, strategy: Strategy, spec: ModelSpec, settings: Settings) -> None:
        self.spec, self.settings = spec, settings
        self.metrics = Metrics()
        self._store = None
        if settings.state is not None:
            layers = {layer.name: layer.channels for layer in describe(model)}
            self._store = StreamStore(settings.state, {"strategy": str(strategy), "model": layers})
        self.predictor = Predictor(
            model,
            strategy,
            max_streams=settings.max_streams,
            store=self._store,
            on_event=lambda event: self.metrics.events.labels(event).inc(),
        )
        self.metrics.streams.set_function(lambda: len(self.predictor.records))
        self.metrics.watch_streams(self.newest_streams)
        self._model_thread = ThreadPoolExecutor(1, "predbn-model")
        self._disk_thread = ThreadPoolExecutor(1, "predbn-disk")
        self._batcher: Batcher | None = None
        self._is_stopping = asyncio.Event()
        self._checkpoints: asyncio.Task[None] | None = None
        self.started = time.time()
        self.rows = 0

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
        if self._store is not None:
            self._checkpoints = asyncio.create_task(self._save_regularly())

    async def stop(self) -> None:
        """Predict what is in the queue, save all streams, and end."""
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            await batcher.close()
        self._is_stopping.set()
        if self._checkpoints is not None:
            await self._checkpoints
        if self._store is not None:
            await self.checkpoint()
            self._store.close()
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
            raise RequestError(
                503,
                f"there was no prediction within {self.settings.timeout:g} s: send the request again later.",
                retry_after=5,
            ) from None

    def newest_streams(self, most: int = MOST_STREAMS) -> list[StreamRecord]:
        """The streams in memory that were used last, the newest first."""
        return list(self.predictor.records.values())[: -most - 1 : -1]

    async def stream(self, id: str) -> StreamRecord | None:
        """What is known about a stream; None if nothing is."""
        record = self.predictor.records.get(id)
        if record is None and self._store is not None:
            saved = await asyncio.get_running_loop().run_in_executor(self._disk_thread, self._store.read, id)
            record = None if saved is None else saved[0]
        return record

    async def forget(self, id: str) -> bool:
        """Forget a stream; False if it is not known."""
        is_known = await self._on_model_thread(lambda: self.predictor.forget(id))
        if is_known:
            self.metrics.events.labels("forgotten").inc()
        return is_known

    async def checkpoint(self) -> None:
        """Save the streams that have changed. What cannot be saved is tried again at the next checkpoint."""
        begin, saved, failure = time.perf_counter(), 0, None
        # A few at a time, so that predictions need not wait for all of them. Streams that change meanwhile may be saved
        # twice, but no more are saved than there are.
        for _ in range(0, len(self.predictor.records) + _STREAMS_AT_ONCE, _STREAMS_AT_ONCE):
            changed = await self._on_model_thread(lambda: self.predictor.take_changed(_STREAMS_AT_ONCE))
            failure = await asyncio.get_running_loop().run_in_executor(self._disk_thread, self._save, changed)
            saved += len(changed)
            if failure is not None or not changed:
                break
        self.metrics.checkpoints.labels("succeeded" if failure is None else "failed").inc()
        if failure is not None:
            _log.error("checkpoint failed", extra={"reason": str(failure)})
        elif saved:
            _log.info("checkpoint", extra={"streams": saved, "seconds": round(time.perf_counter() - begin, 3)})

    def _save(self, changed: list[Snapshot]) -> OSError | None:
        assert self._store is not None
        for number, snapshot in enumerate(changed):
            try:
                self._store.write(snapshot)
            except OSError as error:
                for unsaved in changed[number:]:
                    unsaved.record.is_changed = True
                return error
        return None

    async def _save_regularly(self) -> None:
        while not self._is_stopping.is_set():
            try:
                await asyncio.wait_for(self._is_stopping.wait(), self.settings.checkpoint_every)
            except asyncio.TimeoutError:
                await self.checkpoint()

    async def _on_model_thread(self, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._model_thread, function)

    def _report(self, report: BatchReport) -> None:
        self.rows += report.rows
        self.metrics.count_batch(report)
        _log.debug(
            "batch", extra={"rows": report.rows, "requests": len(report.waited), "seconds": round(report.seconds, 4)}
        )
