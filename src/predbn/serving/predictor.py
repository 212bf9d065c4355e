"""A model under a strategy, and its streams.

All methods but those that only read records are called on one thread, to which the model belongs.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from predbn.common import PredbnError, first_line
from predbn.norm import Strategy, describe, device_of, load_stream_state, remove_stream, stream, stream_state

from .errors import RequestError
from .stream_record import StreamRecord
from .stream_store import Snapshot, StreamStore
from .work import Prediction, Work

_log = logging.getLogger("predbn.serving")


class Predictor:
    """Predicts the rows of many requests, each with the statistics of its own stream.

    At most `max_streams` streams stay in memory. The others go to the store, or are forgotten if there is none.
    `on_event` is called with "evicted" or "restored".
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        *,
        max_streams: int,
        store: StreamStore | None = None,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.model, self.strategy = model.eval(), strategy
        self.records: dict[str, StreamRecord] = {}
        """The streams in memory; the one that was used last is at the end."""
        self._max_streams, self._store, self._on_event = max_streams, store, on_event
        self.device = device_of(model)
        self._unnamed = itertools.count()

    def predict(self, works: Sequence[Work]) -> list[Prediction | Exception]:
        """A prediction for each request, or why there is none. One that cannot be predicted fails alone."""
        for work in works:
            if work.stream is not None:
                if work.starts:
                    self.forget(work.stream)
                self._bring_back(work.stream)
        results: list[Prediction | Exception]
        try:
            results = list(self._forward(works))
        except Exception as error:
            if len(works) > 1:
                results = [self._predict_one(work) for work in works]
            else:
                results = [_request_error(error)]
        for work, result in zip(works, results, strict=True):
            if work.ends and work.stream is not None and isinstance(result, Prediction):
                self.forget(work.stream)
        self._evict()
        return results

    def _predict_one(self, work: Work) -> Prediction | Exception:
        try:
            return self._forward([work])[0]
        except Exception as error:
            return _request_error(error)

    def _forward(self, works: Sequence[Work]) -> list[Prediction]:
        return [self._forward_one(work) for work in works]

    def _forward_one(self, work: Work) -> Prediction:
        rows = torch.from_numpy(np.array(work.rows))
        if rows.dim() == 4:
            rows = rows.contiguous(memory_format=torch.channels_last)
        name = next(self._unnamed) if work.stream is None else work.stream
        with torch.inference_mode():
            if self.strategy.keeps_state:
                with stream(self.model, name):
                    logits = self.model(rows.to(self.device)).float()
                if work.stream is None:
                    remove_stream(self.model, name)
            else:
                logits = self.model(rows.to(self.device)).float()
        if work.stream is not None:
            record = self.records[work.stream]
            record.distances = {layer.name: layer.distance for layer in describe(self.model)}
            record.count(len(work.rows))
        return _prediction(logits)

    def forget(self, id: str) -> bool:
        """Forget a stream, in memory and in the store; False if it is not known."""
        record = self.records.pop(id, None)
        if record is not None:
            record.is_forgotten = True
            self._drop_state(id)
        is_stored = self._store is not None and self._store.delete(id)
        return record is not None or is_stored

    def changed(self) -> list[Snapshot]:
        """The streams that have to be saved. They count as saved from now on: the caller saves them."""
        changed = [record for record in self.records.values() if record.is_changed]
        for record in changed:
            record.is_changed = False
        return [self._snapshot(record) for record in changed]

    def _snapshot(self, record: StreamRecord) -> Snapshot:
        return Snapshot.of(record, stream_state(self.model, record.id))

    def _drop_state(self, id: str) -> None:
        if stream_state(self.model, id):
            remove_stream(self.model, id)

    def _bring_back(self, id: str) -> None:
        """Put a stream at the end of the records, from the store if it is not among them."""
        record = self.records.pop(id, None)
        saved = self._store.read(id) if record is None and self._store is not None else None
        if saved is not None:
            record, states = saved
            try:
                load_stream_state(self.model, id, states)
                self._on_event("restored")
            except PredbnError as error:
                _log.error("stream damaged", extra={"stream": id, "reason": str(error)})
                record = None
        self.records[id] = record or StreamRecord(id)

    def _evict(self) -> None:
        """Remove the streams that were used least recently from memory, once they are saved."""
        for record in list(self.records.values())[: max(0, len(self.records) - self._max_streams)]:
            if record.is_changed and self._store is not None:
                try:
                    self._store.write(self._snapshot(record))
                except OSError as error:  # a full disk: better too much memory than a lost stream
                    _log.error("stream not saved", extra={"stream": record.id, "reason": str(error)})
                    return
            del self.records[record.id]
            self._drop_state(record.id)
            self._on_event("evicted")


def _prediction(logits: Tensor) -> Prediction:
    if not bool(logits.isfinite().all()):
        raise RequestError(500, "the model gave values that are not finite for this request.")
    probabilities, scores = (t.cpu().numpy() for t in (logits.softmax(1), logits))
    return Prediction(probabilities, scores)


def _request_error(error: Exception) -> Exception:
    """What the client is told. An error of ours is about its rows, any other one is about the model."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, PredbnError):
        return RequestError(422, f"{str(error).rstrip('.')}.")
    _log.error("model failed", extra={"reason": first_line(error)}, exc_info=error)
    return RequestError(500, f"the model failed ({type(error).__name__}): the log of the server says more.")
