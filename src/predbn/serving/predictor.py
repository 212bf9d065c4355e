"""A model under a strategy, and its streams.

All methods are called on one thread, to which the model belongs; others only read `records`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn

from predbn.common import PredbnError, ServingError, first_line
from predbn.norm import (
    AdaptationError,
    CapturedModel,
    Drift,
    DriftMeter,
    Strategy,
    UnnamedStream,
    capture,
    device_of,
    remove_stream,
    streams,
)

from .errors import RequestError
from .stream_record import StreamRecord
from .work import Prediction, Work

_log = logging.getLogger("predbn.serving")


_GRAPHS = 32
"""How many shapes of batches are kept as CUDA graphs: rows and streams vary (`norm/static_rows.py`)."""


class _MeasuredModel(nn.Module):
    """A model with what the server needs of a pass, so that a CUDA graph has all of it.

    For each row: the scores of K classes, their probabilities, and how far its stream is off in L layers (seen, used),
    [N, 2·K + 2·L].
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.drift = model, DriftMeter(model)

    def forward(self, rows: Tensor) -> Tensor:
        self.drift.clear()
        logits: Tensor = self.model(rows).float()
        drift = (own.to(logits) for own in self._measure(len(rows)))
        return torch.cat([logits, logits.softmax(1), *drift], 1)

    def _measure(self, rows: int) -> Drift:
        """The drift, or NaN if it cannot be measured. The streams have changed already: the prediction is valid."""
        try:
            return self.drift.measure(rows)
        except Exception as error:
            _log.error("drift not measured", extra={"reason": first_line(error)}, exc_info=error)
            unknown = torch.full((rows, len(self.drift.layers)), torch.nan)
            return Drift(unknown, unknown)


class Predictor:
    """Predicts the rows of many requests together, each request with the statistics of its own stream.

    The model has been adapted with this strategy and a store for streams that leave memory. `records` are the streams
    in memory, at most `max_streams`; the one that was used last is at the end. With `keeps_unsaved`, one that could not
    be saved stays. `on_event` is called with "evicted".
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        records: dict[str, StreamRecord],
        *,
        max_streams: int,
        keeps_unsaved: bool,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not strategy.works_in_streams:
            raise ServingError(f"strategy '{strategy}' predicts one stream at a time and cannot be served.")
        self.model, self.strategy, self.records = model.eval(), strategy, records
        self.device = device_of(model)
        self.passes = 0
        self._max_streams, self._keeps_unsaved, self._on_event = max_streams, keeps_unsaved, on_event
        measured = _MeasuredModel(self.model).eval()
        self.layers = measured.drift.layers
        self._measured: nn.Module = measured
        if self.device is not None and self.device.type == "cuda":
            self._measured = capture(measured, _GRAPHS, pad=True).eval()

    @property
    def replays(self) -> int:
        """How many of the passes were replayed as CUDA graphs."""
        return self._measured.replays if isinstance(self._measured, CapturedModel) else 0

    def predict(self, works: Sequence[Work]) -> list[Prediction | RequestError]:
        """A prediction for each request, or why there is none. One that cannot be predicted fails alone.

        A pass that fails changes no stream, so that its requests can be predicted again one by one.
        """
        for work in works:
            if work.starts and work.stream is not None:
                self.forget(work.stream)
        try:
            results = self._forward(works)
        except Exception as error:
            if len(works) > 1:
                if not isinstance(error, PredbnError):  # those are about one of the requests
                    _log.warning("batch failed", extra={"reason": first_line(error)}, exc_info=error)
                results = [self._predict_alone(work) for work in works]
            else:
                results = [_request_error(error)]
        for work, result in zip(works, results, strict=True):
            if work.ends and work.stream is not None and isinstance(result, Prediction):
                self.forget(work.stream)
        self._remove_old_records()
        return results

    def _predict_alone(self, work: Work) -> Prediction | RequestError:
        try:
            return self._forward([work])[0]
        except Exception as error:
            return _request_error(error)

    def _forward(self, works: Sequence[Work]) -> list[Prediction | RequestError]:
        """One pass through the model."""
        self.passes += 1
        sizes = [len(work.rows) for work in works]
        joined = works[0].rows if len(works) == 1 else np.concatenate([work.rows for work in works])
        rows = torch.tensor(joined, device=self.device)
        if rows.dim() == 4:  # convolutions prefer it
            rows = rows.contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(), self._streams(works):
            found = self._measured(rows).cpu().numpy()
        layers = len(self.layers)
        classes = found.shape[1] // 2 - layers
        scores, shares, seen, used = np.split(found, np.cumsum([classes, classes, layers]), 1)
        ends = list(accumulate(sizes))
        first_rows = [end - size for end, size in zip(ends, sizes, strict=True)]
        self._count(works, seen[first_rows].tolist(), used[first_rows].tolist())
        pieces = zip(np.split(shares, ends[:-1]), np.split(scores, ends[:-1]), strict=True)
        return [_checked(Prediction(*piece)) for piece in pieces]

    @contextmanager
    def _streams(self, works: Sequence[Work]) -> Iterator[None]:
        """Give the rows of each request the statistics of its stream.

        If the strategy remembers nothing, or the request names no stream, its rows are a stream of their own,
        which ends with the pass.
        """
        if self.strategy.is_identity:
            yield
            return
        keeps_state = self.strategy.keeps_state
        names = [work.stream if keeps_state and work.stream is not None else UnnamedStream() for work in works]
        with streams(self._measured, [name for name, work in zip(names, works, strict=True) for _ in work.rows]):
            yield

    def _count(self, works: Sequence[Work], seen: Sequence[list[float]], used: Sequence[list[float]]) -> None:
        """Note what the pass has shown of each stream."""
        for work, own_seen, own_used in zip(works, seen, used, strict=True):
            if work.stream is not None:
                record = self.records.pop(work.stream, None) or StreamRecord(work.stream)
                record.count(len(work.rows), own_seen, own_used)
                self.records[work.stream] = record

    def forget(self, id: str) -> bool:
        """Forget a stream, in memory and in the store; False if it is not known."""
        is_known = self.records.pop(id, None) is not None
        if self.strategy.keeps_state:
            try:
                remove_stream(self.model, id)
            except AdaptationError:  # there is none
                return is_known
            return True
        return is_known

    def _remove_old_records(self) -> None:
        """Remove the records of streams that have left memory. One that could not be saved has not left it."""
        old = list(self.records.values())[: max(0, len(self.records) - self._max_streams)]
        for record in old:
            if record.is_changed and self._keeps_unsaved:
                return
            del self.records[record.id]
            self._on_event("evicted")


def _checked(prediction: Prediction) -> Prediction | RequestError:
    if np.isfinite(prediction.logits).all():
        return prediction
    return RequestError(500, "the model gave values that are not finite for this request.")


def _request_error(error: Exception) -> RequestError:
    """What the client is told. An error of ours is about its rows, any other one is about the model."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, PredbnError):
        return RequestError(422, f"{str(error).rstrip('.')}.")
    _log.error("model failed", extra={"reason": first_line(error)}, exc_info=error)
    return RequestError(500, f"the model failed ({type(error).__name__}): the log of the server says more.")
