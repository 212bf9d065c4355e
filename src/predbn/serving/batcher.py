"""Dynamic batching of requests.

A request waits until there are `max_batch` rows, but at most `max_wait` seconds. While a batch is being predicted, the
next one collects. A batch is also complete when it has as many requests as were open at once before: a client that
sends one request after another, alone, never waits.

If the strategy keeps state, a batch takes at most one request of each stream, since the next one continues from its
state. So requests of a stream are predicted in order of arrival, and independently of which other requests wait.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from .errors import RequestError, shutting_down
from .work import Prediction, Work

PredictBatch = Callable[[list[Work]], Awaitable[Sequence[Prediction | Exception]]]
"""Predicts several requests: for each a prediction or an exception."""


@dataclass(eq=False)
class _Waiting:
    work: Work
    result: asyncio.Future[Prediction]
    since: float


@dataclass(frozen=True)
class BatchReport:
    """One batch: its rows, how long each of its requests has waited, and how long the prediction took."""

    rows: int
    waited: list[float]
    seconds: float


class Batcher:
    """Collects work on an event loop and predicts it batch by batch."""

    def __init__(
        self,
        predict: PredictBatch,
        *,
        max_wait: float,
        max_batch: int,
        max_queue: int,
        one_per_stream: bool,
        report: Callable[[BatchReport], None] = lambda _: None,
    ) -> None:
        self._predict, self._report = predict, report
        self._max_wait, self._max_batch, self._max_queue = max_wait, max_batch, max_queue
        self._one_per_stream = one_per_stream
        self._queue: deque[_Waiting] = deque()
        self._changed = asyncio.Event()
        self._is_closing = False
        self._rows_per_second = math.inf
        self._unanswered = 0
        self._max_unanswered = 0
        """The maximum since the last batch was taken: so many clients may send the next request soon."""
        self.rows_waiting = 0
        self._task = asyncio.create_task(self._run())

    async def submit(self, work: Work) -> Prediction:
        """Wait for the prediction. Raises a RequestError if the queue is full or the server is shutting down."""
        rows = len(work.rows)
        if self._is_closing:
            raise shutting_down()
        if self._queue and self.rows_waiting + rows > self._max_queue:
            wait = math.ceil(min(60.0, self.rows_waiting / self._rows_per_second))
            raise RequestError(
                503,
                f"the queue is full ({self.rows_waiting} rows): send the request again later.",
                retry_after=max(1, wait),
            )
        loop = asyncio.get_running_loop()
        waiting = _Waiting(work, loop.create_future(), loop.time())
        self._queue.append(waiting)
        self.rows_waiting += rows
        self._unanswered += 1
        self._max_unanswered = max(self._max_unanswered, self._unanswered)
        self._changed.set()
        try:
            return await waiting.result  # if the caller is cancelled, so is this, and it is not predicted
        finally:
            self._unanswered -= 1

    async def close(self) -> None:
        """Accept no more work, and finish the queue."""
        self._is_closing = True
        self._changed.set()
        await self._task

    async def _run(self) -> None:
        while await self._is_batch_ready():
            batch = self._take()
            if batch:
                await self._predict_batch(batch)

    async def _is_batch_ready(self) -> bool:
        """Wait for a batch; False when closed and finished."""
        while not self._queue:
            if self._is_closing:
                return False
            self._changed.clear()
            await self._changed.wait()
        now = asyncio.get_running_loop().time
        deadline = self._queue[0].since + self._max_wait
        while not self._is_full() and now() < deadline:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - now())
            except asyncio.TimeoutError:
                break
        return True

    def _is_full(self) -> bool:
        """Whether waiting longer is useless."""
        has_all_clients = len(self._queue) >= self._max_unanswered
        return has_all_clients or self.rows_waiting >= self._max_batch or self._is_closing

    def _take(self) -> list[_Waiting]:
        """The next batch: the oldest request and, in order of arrival, all others that fit and may join it."""
        taken: list[_Waiting] = []
        left: deque[_Waiting] = deque()
        room = self._max_batch
        blocked: set[str | None] = set()  # streams of which no further request may be taken
        for waiting in self._queue:
            stream, rows = waiting.work.stream, len(waiting.work.rows)
            if waiting.result.done():  # cancelled
                self.rows_waiting -= rows
                continue
            is_taken = stream not in blocked and (rows <= room or not taken)
            if is_taken:
                taken.append(waiting)
                room -= rows
                self.rows_waiting -= rows
            else:
                left.append(waiting)
            if stream is not None and (self._one_per_stream or not is_taken):
                blocked.add(stream)
        self._queue = left
        self._max_unanswered = self._unanswered
        return taken

    async def _predict_batch(self, batch: list[_Waiting]) -> None:
        now = asyncio.get_running_loop().time
        begin = now()
        try:
            results = await self._predict([waiting.work for waiting in batch])
        except Exception as error:
            results = [error] * len(batch)
        rows = sum(len(waiting.work.rows) for waiting in batch)
        report = BatchReport(rows, [begin - waiting.since for waiting in batch], now() - begin)
        self._rows_per_second = report.rows / max(report.seconds, 1e-9)
        for waiting, result in zip(batch, results, strict=True):
            if waiting.result.done():
                continue
            if isinstance(result, Exception):
                waiting.result.set_exception(result)
            else:
                waiting.result.set_result(result)
        self._report(report)
