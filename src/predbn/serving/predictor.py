"""A model under a strategy, and its streams.

All methods are called on one thread, to which the model belongs; others only read `records`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from predbn.common import PredbnError, ServingError, first_line
from predbn.gpu import CapturedModel, capture_padded
from predbn.norm import (
    AdaptationError,
    Drift,
    DriftMeter,
    Strategy,
    Train,
    UnnamedStream,
    adapted_layers,
    device_of,
    remove_stream,
    streams,
)

from .errors import RequestError
from .stream_record import StreamRecord
from .work import Prediction, Work

_MAX_GRAPHS = 32
"""How many CUDA graphs are kept, one per shape of a batch."""
_LARGE_INPUT = 1e6
"""Inputs beyond this are to blame for an output that is not finite."""

_log = logging.getLogger("predbn.serving")


class _MeasuredModel(nn.Module):
    """A model with all outputs that the server needs, so that they are in one CUDA graph.

    For each row the logits and the probabilities of K classes, and the drift (seen, used) of its stream in L layers,
    [N, 2·K + 2·L].
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.drift = model, DriftMeter(model)

    def forward(self, rows: Tensor) -> Tensor:
        self.drift.clear()
        logits: Tensor = self.model(rows).float()
        seen, used = self._measure(len(rows))
        return torch.cat([logits, logits.softmax(1), seen.to(logits), used.to(logits)], 1)

    def _measure(self, rows: int) -> Drift:
        """The drift, or NaN if that fails: the streams have been updated already, and the prediction is valid."""
        try:
            return self.drift.measure(rows)
        except Exception as error:
            _log.error("drift not measured", extra={"reason": first_line(error)}, exc_info=error)
            unknown = torch.full((rows, len(self.drift.layers)), torch.nan)
            return Drift(unknown, unknown)


class Predictor:
    """Predicts the rows of many requests together, each request with the statistics of its own stream.

    The model has been adapted with this strategy and a store for evicted streams. `records` are the streams in memory,
    at most `max_streams`, the most recently used last; if the strategy keeps state, a record leaves memory with its
    stream. `on_event` is called with "evicted".
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        records: dict[str, StreamRecord],
        *,
        max_streams: int,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not strategy.works_on_segments:
            raise ServingError(
                f"strategy '{strategy}' cannot be served: it does not support several streams in a batch."
            )
        self.model, self.strategy, self.records = model.eval(), strategy, records
        self.device = device_of(model)
        self.passes = 0
        self._max_streams, self._on_event = max_streams, on_event
        self._registry = adapted_layers(model)[0][2].shared.streams
        measured = _MeasuredModel(self.model).eval()
        self.layers = measured.drift.layers
        self._measured: nn.Module = measured
        if self.device is not None and self.device.type == "cuda":
            self._measured = capture_padded(measured, _MAX_GRAPHS).eval()

    @property
    def streams_in_memory(self) -> int:
        """How many streams are in memory, the default stream, which no request uses, aside."""
        return len(self._registry) - 1 if self.strategy.keeps_state else len(self.records)

    @property
    def replays(self) -> int:
        """How many forward passes were replayed as CUDA graphs."""
        return self._measured.replays if isinstance(self._measured, CapturedModel) else 0

    def predict(self, works: Sequence[Work]) -> list[Prediction | RequestError]:
        """A prediction or an error for each request.

        A forward pass that fails changes no stream, so its requests are predicted again one by one.
        """
        for work in works:
            if work.starts and work.stream is not None:
                self.forget(work.stream)
        results = self._forward_or_split(works)
        for work, result in zip(works, results, strict=True):
            if work.ends and work.stream is not None and isinstance(result, Prediction):
                self.forget(work.stream)
        self._remove_old_records()
        return results

    def _forward_or_split(self, works: Sequence[Work]) -> list[Prediction | RequestError]:
        try:
            return self._forward(works)
        except Exception as error:
            if len(works) == 1:
                return [_request_error(error)]
            if not isinstance(error, PredbnError):  # an error of ours is about one of the requests
                _log.warning("batch failed", extra={"reason": first_line(error)}, exc_info=error)
        return [result for work in works for result in self._forward_or_split([work])]

    def _forward(self, works: Sequence[Work]) -> list[Prediction | RequestError]:
        """One forward pass."""
        self.passes += 1
        sizes = [len(work.rows) for work in works]
        joined = works[0].rows if len(works) == 1 else np.concatenate([work.rows for work in works])
        rows = torch.tensor(joined, device=self.device)
        if rows.dim() == 4:  # faster convolutions
            rows = rows.contiguous(memory_format=torch.channels_last)
        with torch.inference_mode(), self._streams(works):
            outputs = self._measured(rows).cpu().numpy()
            layers = len(self.layers)
            classes = outputs.shape[1] // 2 - layers
            results: list[Prediction | RequestError] = []
            for work, own_rows in zip(works, np.split(outputs, np.cumsum(sizes)[:-1]), strict=True):
                logits, probabilities, seen, used = np.split(own_rows, np.cumsum([classes, classes, layers]), 1)
                self._count(work, seen[0].tolist(), used[0].tolist())  # while its stream cannot leave memory
                is_finite = np.isfinite(logits).all()
                results.append(Prediction(probabilities, logits) if is_finite else _not_finite(work))
        return results

    def _streams(self, works: Sequence[Work]) -> AbstractContextManager[Any]:
        """Assign the rows of each request to its stream.

        If the strategy keeps no state, or the request names no stream, its rows are a stream of their own, which ends
        with the forward pass.
        """
        if isinstance(self.strategy, Train):
            return nullcontext()
        keeps_state = self.strategy.keeps_state
        names = [work.stream if keeps_state and work.stream is not None else UnnamedStream() for work in works]
        return streams(self._measured, [name for name, work in zip(names, works, strict=True) for _ in work.rows])

    def _count(self, work: Work, seen: list[float], used: list[float]) -> None:
        """Update the record of the stream, and make it the most recently used one."""
        if work.stream is not None:
            record = self.records.pop(work.stream, None) or StreamRecord(work.stream)
            record.count(len(work.rows), seen, used)
            self.records[work.stream] = record

    def forget(self, id: str) -> bool:
        """Delete a stream from memory and from the store; False if it is unknown."""
        is_known = self.records.pop(id, None) is not None
        if self.strategy.keeps_state:
            try:
                remove_stream(self.model, id)
            except AdaptationError:  # unknown
                return is_known
            return True
        return is_known

    def _remove_old_records(self) -> None:
        """Remove the records of evicted streams; one that could not be saved is still in memory."""
        for id in list(self.records)[: max(0, len(self.records) - self._max_streams)]:
            if id not in self._registry:
                del self.records[id]
                self._on_event("evicted")


def _not_finite(work: Work) -> RequestError:
    largest = np.abs(work.rows, dtype=np.float64).max()
    sentence = "the model gave values that are not finite for this request"
    if largest < _LARGE_INPUT:
        return RequestError(500, f"{sentence}.")
    return RequestError(422, f"{sentence}, whose inputs go up to {largest:.3g}: scale them as for training.")


def _request_error(error: Exception) -> RequestError:
    """The error for the client: one of ours is about its rows, any other is a bug of the model."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, PredbnError):
        return RequestError(422, f"{str(error).rstrip('.')}.")
    _log.error("model failed", extra={"reason": first_line(error)}, exc_info=error)
    return RequestError(500, f"the model failed ({type(error).__name__}): see the log of the server.")
