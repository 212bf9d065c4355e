"""Logits of many predictors on the same batches, and the one rule about threads.

On a CPU every forward pass runs on one core, and as many passes as there are cores run side by side: the number of
cores then changes no bit of a result. A GPU gets one pass after another, without waiting for it, and runs those of
different predictors at the same time if they are CUDA graphs (`cuda_graphs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from predbn.common import each_on_one_core
from predbn.shifts import Attack

from .model_cache import ModelCache, PredictorKey
from .predictor import Predictor
from .source import AnyBatch

T = TypeVar("T")
R = TypeVar("R")

_Task = tuple[int, PredictorKey, list[AnyBatch]]
"""The number of the (first) batch, who predicts it, and the batches."""


def start_stream(cache: ModelCache, keys: Sequence[PredictorKey], stream: Callable[[], Iterator[Tensor]]) -> None:
    """Get all predictors ready for a stream. They are also made here, if they do not exist yet."""
    for models in cache.groups_in_memory(key.model for key in keys):
        group = [key for key in keys if key.model in models]
        _map(cache, lambda key: cache.predictor(key).start_stream(stream), group)


def predict(
    cache: ModelCache,
    keys: Sequence[PredictorKey],
    batches: Mapping[int, list[AnyBatch]],
    attack: Attack | None = None,
) -> dict[PredictorKey, Tensor]:
    """The logits of each predictor, [images, classes], on the batches of its pass size.

    Passes are ordered by batch, so that on a GPU a batch is copied once for all predictors of a stream. A
    predictor with state gets its batches one after another, in one task. With an `attack`, each predictor is attacked
    for itself.
    """
    logits: dict[PredictorKey, list[Tensor]] = {key: [] for key in keys}
    for models in cache.groups_in_memory(key.model for key in keys):
        predictors = {key: cache.predictor(key) for key in keys if key.model in models}
        tasks: list[_Task] = []
        for key, predictor in predictors.items():
            its_batches = batches[predictor.pass_size]
            pieces = [[batch] for batch in its_batches] if predictor.is_stateless else [its_batches]
            tasks += [(number, key, piece) for number, piece in enumerate(pieces)]
        tasks.sort(key=lambda task: task[0])
        streams = cache.graph_streams
        with nullcontext() if streams is None else streams.running():
            parts = _map(cache, partial(_run, predictors, attack), tasks)
        for (_, key, _), part in zip(tasks, parts, strict=True):
            logits[key].append(part)
        if streams is not None:
            streams.forget_images()
    return {key: torch.cat(parts) for key, parts in logits.items()}


def _run(predictors: Mapping[PredictorKey, Predictor], attack: Attack | None, task: _Task) -> Tensor:
    _, key, batches = task
    predictor = predictors[key]
    if attack is not None:
        logits = [predictor.attacked_logits(attack, batch.inputs, batch.labels) for batch in batches]
    elif predictor.graph_stream is not None:
        logits = [predictor.graph_stream.run(partial(predictor.logits, batch.inputs)) for batch in batches]
    else:
        logits = [predictor.logits(batch.inputs) for batch in batches]
    return logits[0] if len(logits) == 1 else torch.cat(logits)


def _map(cache: ModelCache, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    return [function(item) for item in items] if cache.graph_streams is not None else each_on_one_core(function, items)
