"""One model under one setting, ready to predict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from predbn.models import AnyModel
from predbn.norm import adapt, load_state_dict, reset, state_dict

from .cuda_graphs import Desk, Graphed, layout_of
from .precision import Precision, casting
from .settings import Setting

__all__ = ["Lane", "share", "span_of"]

_SMALL = {"cpu": 4, "cuda": 100}
"""Batches up to this size are predicted many at once. On a CPU grouping costs more than starting a pass from there on;
on a GPU it was still faster at this size, and larger batches were not tried."""
_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Values of pictures in such a pass: on a CPU, enough that starting it does not count; on a GPU, enough to fill it."""


def span_of(setting: Setting, batch_size: int, values: int, device: torch.device) -> int:
    """How many images of `values` each a pass takes: one batch, or where they are small and do not depend on each
    other, as many as it pays to predict together, each with its own statistics."""
    kind = "cuda" if device.type == "cuda" else "cpu"
    if batch_size > _SMALL[kind] or not setting.strategy.works_in_groups:
        return batch_size
    return batch_size * max(1, _AT_ONCE[kind] // (values * batch_size))


def share(model: AnyModel) -> AnyModel:
    """A copy that can be adapted by itself and shares parameters and buffers with the original."""
    tensors: Iterable[Tensor] = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


class Lane:
    """Predicts batch after batch of a stream. Between streams it forgets what the strategy remembers.

    `span` is how many images it wants at a time: a batch, or several.
    """

    def __init__(
        self,
        model: AnyModel,
        setting: Setting,
        eps: float | None,
        precision: Precision,
        desk: Desk | None,
        batch_size: int,
        span: int,
    ) -> None:
        self.setting, self.batch_size, self.span = setting, batch_size, span
        self._precision = precision
        self._options: dict[str, Any] = {"eps": eps, "layers": setting.layers}
        self._device = next(chain(model.parameters(), model.buffers())).device
        self._plain = setting.strategy.is_identity and eps is None
        self.model: nn.Module = model if self._plain else adapt(share(model), setting.strategy, **self._options)
        self._call = self._caller(self.model, desk)
        self._groups = self._call
        if span > batch_size and not self._plain:
            grouped = adapt(share(model), setting.strategy, group=batch_size, **self._options)
            self._groups = self._caller(grouped, desk)

    def _caller(self, model: nn.Module, desk: Desk | None) -> Callable[[Tensor], Tensor]:
        call: Callable[[Tensor], Tensor] = partial(_forward, model, self._precision, self._device)
        return Graphed(call, desk) if desk is not None and self.is_free else call

    @property
    def is_free(self) -> bool:
        """Whether a prediction depends on nothing but its own batch, so that batches may be taken in any order."""
        return not self.setting.strategy.keeps_state and not self.setting.looks_ahead

    def begin(self, stream: Callable[[], Iterator[Tensor]]) -> None:
        """Get ready for a stream: forget the one before, and look through this one if the strategy needs to."""
        if self.setting.looks_ahead:
            with torch.inference_mode(), casting(self._precision, self._device):
                adapt(self.model, self.setting.strategy, loader=_Again(stream), **self._options)
        elif self.setting.strategy.keeps_state:
            reset(self.model)

    def logits(self, images: Tensor) -> Tensor:
        """The logits of `span` images; of fewer at the end of a stream, where the last batch may be smaller too."""
        with torch.inference_mode():
            if self._groups is self._call:
                return self._call(images)
            whole = len(images) // self.batch_size * self.batch_size
            if whole == len(images):
                return self._groups(images)
            rest = self._call(images[whole:])
            return rest if not whole else torch.cat((self._groups(images[:whole]), rest))

    def memory(self) -> dict[str, Any] | None:
        """What the strategy remembers, so that the lane can be made again without losing it."""
        return None if self.is_free else state_dict(self.model)

    def remember(self, memory: dict[str, Any]) -> None:
        """Go on from what another lane of the same kind remembered."""
        load_state_dict(self.model, memory)


def _forward(model: nn.Module, precision: Precision, device: torch.device, images: Tensor) -> Tensor:
    """No method of the lane, which would then hold itself and keep a model that has to go in memory."""
    with casting(precision, device):
        logits: Tensor = model(images.contiguous(memory_format=layout_of(images)))
    return logits


class _Again:
    """A stream that can be gone through as often as one likes."""

    def __init__(self, stream: Callable[[], Iterator[Tensor]]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Tensor]:
        return self._stream()
