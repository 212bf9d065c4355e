"""Dynamic batching of requests, with fair shares.

A batch is collected until it has `max_batch` rows, or everybody of the last batch has come back, but for at most
`max_wait` seconds (longer if some have used up their share). While it is being predicted, requests wait. A client
that sends one request after another, alone, never waits.

If the strategy keeps state, a batch takes at most one request of each stream, since the next one continues from its
state. So requests of a stream are predicted in order of arrival, and independently of which other requests wait.

Clients have equal shares of the model, and so have the streams of each client (`Turns`). What remains of a batch is
filled with requests of those who have used up theirs only as far as that hardly prolongs it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from .errors import shutting_down
from .turns import Stream, Turns
from .work import Prediction, Work

PredictBatch = Callable[[list[Work]], Awaitable[Sequence[Prediction | Exception]]]
"""Predicts several requests: for each a prediction or an exception."""

_MAX_PROLONGATION = 0.1
"""By how much of its time a batch may be prolonged by requests of those who have used up their share."""
_PATIENCE = 0.25
"""For how much of the time of the last batch its clients are waited for if others have used up their share."""


@dataclass(eq=False)
class _Waiting:
    work: Work
    result: asyncio.Future[Prediction]
    since: float

    @property
    def stream(self) -> Stream:
        return self.work.client, self.work.stream


@dataclass(frozen=True)
class BatchReport:
    """One batch: its rows, how long each of its requests has waited, and how long the prediction took."""

    rows: int
    waited: list[float]
    seconds: float


class _Batch:
    """A batch that is being collected."""

    def __init__(self, max_rows: int, one_per_stream: bool) -> None:
        self.taken: list[_Waiting] = []
        self.room = max_rows
        self.is_full = False
        self.closed_streams: set[str | None] = set()
        """Streams of which no further request may be taken: those of a stream stay in order."""
        self._one_per_stream = one_per_stream

    def take(self, waiting: _Waiting) -> bool:
        """Take a request if it fits, or if it is the first."""
        stream, rows = waiting.work.stream, len(waiting.work.rows)
        if stream in self.closed_streams:
            return False
        fits = rows <= self.room or not self.taken
        if fits:
            self.taken.append(waiting)
            self.room -= rows
        self.is_full |= not fits or self.room <= 0
        if self._one_per_stream or not fits:
            self.pass_over(waiting)
        return fits

    def pass_over(self, waiting: _Waiting) -> None:
        """Leave a request to a later batch, and so all further ones of its stream."""
        if waiting.work.stream is not None:
            self.closed_streams.add(waiting.work.stream)

    def reopen(self) -> None:
        """Allow requests that were passed over."""
        taken = {waiting.work.stream for waiting in self.taken} - {None}
        self.closed_streams = taken if self._one_per_stream else set()


class Batcher:
    """Collects work on an event loop and predicts it batch by batch.

    `rows_of_base` tells how the time of a batch depends on its size: it is that of its rows and of so many more.
    """

    def __init__(
        self,
        predict: PredictBatch,
        *,
        max_wait: float,
        max_batch: int,
        rows_of_base: float = 0.0,
        one_per_stream: bool,
        report: Callable[[BatchReport], None] = lambda _: None,
    ) -> None:
        self._predict, self._report = predict, report
        self._max_wait, self._max_batch, self._one_per_stream = max_wait, max_batch, one_per_stream
        self._rows_of_base = rows_of_base
        self._queue: list[_Waiting] = []
        self._batch: _Batch | None = None
        """The batch that is being collected; None while one is being predicted."""
        self._last: list[Stream] = []
        """The streams of the requests in the last batch."""
        self._missing: Counter[Stream] = Counter()
        """Those of which no other request has come since."""
        self._turns = Turns(max_batch)
        self._last_seconds = 0.0
        self._changed = asyncio.Event()
        self._is_closing = False
        self._task = asyncio.create_task(self._run())

    @property
    def rows_waiting(self) -> int:
        """Rows that are not being predicted yet."""
        return sum(len(waiting.work.rows) for waiting in self._present())

    async def submit(self, work: Work) -> Prediction:
        """Wait for the prediction. If the caller is cancelled before its batch begins, nothing is predicted."""
        if self._is_closing:
            raise shutting_down()
        loop = asyncio.get_running_loop()
        waiting = _Waiting(work, loop.create_future(), loop.time())
        if waiting.stream in self._missing:
            self._missing -= Counter((waiting.stream,))
        if self._batch is None or not self._offer(waiting, self._batch):
            self._queue.append(waiting)
        self._changed.set()
        return await waiting.result

    async def close(self) -> None:
        """Accept no more work, and finish the queue."""
        self._is_closing = True
        self._changed.set()
        await self._task

    def abandon(self) -> None:
        """Accept no more work, and refuse what waits."""
        self._is_closing = True
        for waiting in self._present():
            waiting.result.set_exception(shutting_down())
        self._changed.set()

    def _present(self) -> list[_Waiting]:
        """The requests that wait, without those whose clients have gone."""
        taken = [] if self._batch is None else self._batch.taken
        return [waiting for waiting in (*taken, *self._queue) if not waiting.result.done()]

    async def _run(self) -> None:
        while await self._has_work():
            batch = [waiting for waiting in await self._collect() if not waiting.result.done()]
            if batch:
                await self._predict_batch(batch)

    async def _has_work(self) -> bool:
        """Wait for a request; False when closed and finished."""
        while not (self._queue or self._is_closing):
            self._changed.clear()
            await self._changed.wait()
        return bool(self._queue)

    async def _collect(self) -> list[_Waiting]:
        """The requests of the next batch."""
        self._queue = [waiting for waiting in self._queue if not waiting.result.done()]
        now = asyncio.get_running_loop().time
        begin = now()
        self._turns.begin([*self._last, *(waiting.stream for waiting in self._queue)], begin)
        batch = self._batch = self._begin_batch()
        while self._missing and not (batch.is_full or self._is_closing):
            patience = self._max_wait
            if self._queue:  # somebody would take what is left by those who come too late
                patience = max(patience, _PATIENCE * self._last_seconds)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), begin + patience - now())
            except asyncio.TimeoutError:
                break
        if not batch.taken and self._queue:
            self._turns.begin((waiting.stream for waiting in self._queue), now())
            batch = self._begin_batch()
        self._fill(batch)
        self._batch = None
        self._last = [waiting.stream for waiting in batch.taken]
        self._missing = Counter(self._last) - Counter(waiting.stream for waiting in self._queue)
        return batch.taken

    def _begin_batch(self) -> _Batch:
        """A batch with all requests of the queue whose turn it is."""
        batch = _Batch(self._max_batch, self._one_per_stream)
        self._queue = [waiting for waiting in self._queue if not self._offer(waiting, batch)]
        return batch

    def _offer(self, waiting: _Waiting, batch: _Batch) -> bool:
        """Add a request to a batch, if it is the turn of its client and its stream."""
        if not self._turns.has_turn(waiting.stream):
            batch.pass_over(waiting)
            return False
        is_taken = batch.take(waiting)
        if is_taken:
            self._turns.count(waiting.stream, len(waiting.work.rows))
        return is_taken

    def _fill(self, batch: _Batch) -> None:
        """Add requests whose turn it is not, as long as they hardly prolong the batch."""
        if not self._queue:
            return
        spare = _MAX_PROLONGATION * (self._rows_of_base + self._max_batch - batch.room)
        batch.reopen()
        left = []
        for waiting in self._queue:
            if len(waiting.work.rows) <= spare and batch.take(waiting):
                spare -= len(waiting.work.rows)
            else:
                batch.pass_over(waiting)
                left.append(waiting)
        self._queue = left

    async def _predict_batch(self, batch: list[_Waiting]) -> None:
        now = asyncio.get_running_loop().time
        begin = now()
        try:
            results = await self._predict([waiting.work for waiting in batch])
        except Exception as error:
            results = [error] * len(batch)
        rows = sum(len(waiting.work.rows) for waiting in batch)
        report = BatchReport(rows, [begin - waiting.since for waiting in batch], now() - begin)
        self._last_seconds = report.seconds
        for waiting, result in zip(batch, results, strict=True):
            if waiting.result.done():
                continue
            if isinstance(result, Exception):
                waiting.result.set_exception(result)
            else:
                waiting.result.set_result(result)
        self._report(report)
