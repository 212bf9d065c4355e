"""Logits of many lanes on the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from predbn.common import EvaluationError, each_on_one_core

from .model_cache import LaneKey, Shelf
from .predictor import Lane
from .rebatch import AnyBatch

__all__ = ["Watch", "begin", "predict"]

T = TypeVar("T")
R = TypeVar("R")

_Piece = tuple[int, LaneKey, list[Tensor]]


def begin(shelf: Shelf, lanes: Sequence[LaneKey], stream: Callable[[], Iterator[Tensor]]) -> None:
    """Get all lanes ready for a stream."""
    for wave in shelf.waves(dict.fromkeys(key.model for key in lanes)):
        _each(shelf, lambda key: shelf.lane(key).begin(stream), [key for key in lanes if key.model in wave])


def predict(shelf: Shelf, lanes: Sequence[LaneKey], batches: Mapping[int, list[AnyBatch]]) -> dict[LaneKey, Tensor]:
    """The logits of all batches of a lane's span, by lane: [images, classes].

    Jobs go batch by batch, so that on a GPU a batch is copied to where the graphs look for it once for all lanes. A
    lane that keeps state takes its batches one after another.
    """
    found: dict[LaneKey, list[Tensor]] = {key: [] for key in lanes}
    for wave in shelf.waves(dict.fromkeys(key.model for key in lanes)):
        mine = {key: shelf.lane(key) for key in lanes if key.model in wave}
        jobs: list[_Piece] = []
        for key, lane in mine.items():
            images = [batch.inputs for batch in batches[lane.span]]
            pieces = [[each] for each in images] if lane.is_free else [images]
            jobs += [(number, key, piece) for number, piece in enumerate(pieces)]
        jobs.sort(key=lambda job: job[0])
        parts = _each(shelf, partial(_run, mine), jobs)
        for (_, key, _), part in zip(jobs, parts, strict=True):
            found[key].append(part)
        if shelf.desk is not None:
            shelf.desk.clear()
    return {key: torch.cat(parts) for key, parts in found.items()}


def _run(lanes: Mapping[LaneKey, Lane], job: _Piece) -> Tensor:
    _, key, batches = job
    logits = [lanes[key].logits(images) for images in batches]
    return logits[0] if len(logits) == 1 else torch.cat(logits)


def _each(shelf: Shelf, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """On a CPU side by side, one core each; a GPU takes one after another, and is not waited for."""
    return [function(item) for item in items] if shelf.desk is not None else each_on_one_core(function, items)


class Watch:
    """Stops a unit whose logits are not finite, and says where. A GPU is asked once, at the end."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._first: dict[str, Tensor] = {}

    def see(self, model: str, logits: Tensor, index: Tensor) -> None:
        """Look at the logits of the images with these indices, on the same device."""
        wrong = ~torch.isfinite(logits).all(1)
        none = torch.iinfo(torch.int64).max
        first = torch.where(wrong, index, none).amin()
        before = self._first.get(model)
        self._first[model] = first if before is None else torch.minimum(before, first)
        if logits.device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Refuse what was seen, if it has to be."""
        for model, first in self._first.items():
            index = int(first)
            if index != torch.iinfo(torch.int64).max:
                raise EvaluationError(
                    f"{model} gives logits that are not finite on {self._where}, first for the image with index "
                    f"{index}: look for an overflow (precision fp32 helps where half does not) or a wrong std."
                )
