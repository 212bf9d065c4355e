"""The server without HTTP: requests go to the batcher, batches to the predictor, changed streams to the disk.

Model and disk have a thread each, so that a slow disk does not delay predictions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, TypeVar

import numpy as np
from prometheus_client.core import Metric
from torch import nn

from predbn.norm import Strategy, device_of, predictor, save_streams

from .batcher import Batcher, BatchReport
from .errors import shutting_down
from .metrics import MAX_STREAMS, Metrics
from .model_spec import ModelSpec
from .predictor import Predictor
from .settings import Settings
from .stream_folder import NoStore, StreamFolder
from .stream_record import StreamRecord
from .tensors import DATATYPES
from .work import Prediction, Work

R = TypeVar("R")
_WARM_UPS = 3
_log = logging.getLogger("predbn.serving")


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
        self.spec, self.settings, self.strategy, self.device = spec, settings, strategy, device_of(model)
        self.metrics = Metrics()
        records: dict[str, StreamRecord] = {}
        self._folder: StreamFolder | None = None
        if settings.state is not None and strategy.keeps_state:
            self._folder = StreamFolder(settings.state, records, replica, self._count_event)
        try:
            adapted = predictor(model, strategy, max_streams=settings.max_streams, store=self._folder or NoStore())
        except BaseException:
            if self._folder is not None:
                self._folder.close()
            raise
        self.predictor = Predictor(
            adapted,
            strategy,
            records,
            max_streams=settings.max_streams,
            on_event=self._count_event,
        )
        self.metrics.streams.set_function(lambda: self.predictor.streams_in_memory)
        if settings.stream_metrics:
            self.metrics.watch_streams(self.newest_streams)
        self._model_thread = ThreadPoolExecutor(1, "predbn-model")
        self._disk_thread = ThreadPoolExecutor(1, "predbn-disk")
        self._batcher: Batcher | None = None
        self._checkpoints: asyncio.Task[None] | None = None
        self.started = time.time()
        self.rows = 0
        self.replicas = 1
        self.is_draining = self.is_saved = False

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted."""
        return self._batcher is not None

    async def start(self) -> None:
        """Start predicting, when the model is warm."""
        settings = self.settings
        rows_of_base = await _run_on(self._model_thread, self._warm_up)
        batcher = self._batcher = Batcher(
            lambda works: _run_on(self._model_thread, lambda: self.predictor.predict(works)),
            max_wait=settings.max_wait,
            max_batch=settings.max_batch,
            rows_of_base=rows_of_base,
            one_per_stream=self.strategy.keeps_state,
            report=self._report,
        )
        self.metrics.queue.set_function(lambda: batcher.rows_waiting)
        if self._folder is not None:
            self._checkpoints = asyncio.create_task(self._save_regularly())

    def _warm_up(self) -> float:
        """Predict small and full batches of zeros, whose first ones take longest.

        Returns the time of a batch without rows, in rows.
        """
        small, large = 2, max(3, self.settings.max_batch)
        zeros = np.zeros((large, *self.spec.row_shape), DATATYPES[self.spec.datatype])
        seconds: dict[int, float] = {}
        for rows in (small, large) * _WARM_UPS:
            begin = time.perf_counter()
            self.predictor.predict([Work(zeros[:rows])])
            seconds[rows] = time.perf_counter() - begin
        per_row = (seconds[large] - seconds[small]) / (large - small)
        return max(0.0, seconds[small] / per_row - small) if per_row > 0 else inf

    async def abandon(self) -> None:
        """Refuse what is in the queue."""
        if self._batcher is not None:
            self._batcher.abandon()

    async def stop(self) -> bool:
        """Predict what is in the queue, and save all streams; whether that has succeeded."""
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            await batcher.close()
        if self._checkpoints is not None:
            self._checkpoints.cancel()  # what it has begun to write comes before the last checkpoint
        if self._folder is not None:
            await self.checkpoint()
            self._folder.close()
        _log.info("stopped")
        self._model_thread.shutdown()
        self._disk_thread.shutdown()
        return self.is_saved

    async def infer(self, work: Work) -> Prediction:
        """The prediction of one request."""
        if self._batcher is None:
            raise shutting_down()
        return await self._batcher.submit(work)

    def newest_streams(self, count: int = MAX_STREAMS) -> list[StreamRecord]:
        """The most recently used streams in memory, newest first."""
        return list(self.predictor.records.values())[: -count - 1 : -1]

    async def overview(self) -> dict[str, Any]:
        """The most recently used streams, and how many there are in memory."""
        return {
            "model": self.spec.name,
            "strategy": str(self.strategy),
            "since": self.started,
            "rows": self.rows,
            "count": self.predictor.streams_in_memory,
            "streams": [record.summary() for record in self.newest_streams()],
        }

    async def details(self, id: str) -> dict[str, Any] | None:
        """The record of a stream with its distances by layer; None if the stream is not known."""
        record, folder = self.predictor.records.get(id), self._folder
        if record is None and folder is not None:
            record = await _run_on(self._disk_thread, lambda: folder.record(id))
        return None if record is None else record.details(self.predictor.layers)

    async def metric_families(self) -> list[Metric]:
        """All metrics."""
        return self.metrics.families()

    async def forget(self, id: str) -> bool:
        """Forget a stream; False if it is not known."""
        is_known = await _run_on(self._model_thread, lambda: self.predictor.forget(id))
        if is_known:
            self._count_event("forgotten")
        return is_known

    async def checkpoint(self) -> None:
        """Save the streams that have changed. What fails is tried again at the next checkpoint."""
        begin, folder = time.perf_counter(), self._folder
        assert folder is not None
        folder.written.clear()
        try:
            await _run_on(self._disk_thread, lambda: save_streams(self.predictor.model))
        except Exception as error:
            self.metrics.checkpoints.labels("failed").inc()
            is_bug = not isinstance(error, OSError)
            _log.error("checkpoint failed", extra={"reason": str(error)}, exc_info=error if is_bug else None)
            self.is_saved = False
            return
        self.is_saved = True
        self.metrics.checkpoints.labels("succeeded").inc()
        if folder.written:
            seconds = round(time.perf_counter() - begin, 3)
            _log.info("checkpoint", extra={"streams": len(folder.written), "seconds": seconds})

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings.checkpoint_every)
            await self.checkpoint()

    def _count_event(self, event: str) -> None:
        self.metrics.events.labels(event).inc()

    def _report(self, report: BatchReport) -> None:
        self.rows += report.rows
        self.metrics.count_batch(report)
        _log.debug(
            "batch", extra={"rows": report.rows, "requests": len(report.waited), "seconds": round(report.seconds, 4)}
        )


async def _run_on(thread: ThreadPoolExecutor, function: Callable[[], R]) -> R:
    return await asyncio.get_running_loop().run_in_executor(thread, function)
