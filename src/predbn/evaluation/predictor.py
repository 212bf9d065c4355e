"""One model under one setting, ready to predict a stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from predbn.models import AnyModel, Classifier
from predbn.norm import adapt, load_state_dict, predictor, reset, state_dict
from predbn.shifts import Attack

from .batches import Reiterable
from .cuda_graphs import GraphedFunction, GraphStream, layout_of
from .precision import Precision, casting
from .setting import Setting

M = TypeVar("M", bound=nn.Module)

_MAX_GROUPED_BATCH = {"cpu": 4, "cuda": 100}
"""Batches up to this size are predicted many at once. On a CPU, for larger ones grouping costs more than starting a
pass; on a GPU it was still faster at this size, and larger batches were not tried."""
_VALUES_PER_PASS = {"cpu": 1 << 18, "cuda": 1 << 24}
"""Input values in such a pass: on a CPU, enough that the cost of starting it is negligible; on a GPU, enough to fill
it."""
_VALUES_PER_ATTACK = 1 << 22
"""Input values in a pass of an attack on a GPU, where batches of any size are attacked together. For ResNet-20 under
`auto`, the gradients keep 3 GB of such a pass."""


def pass_size(setting: Setting, batch_size: int, values: int, device: torch.device, *, attacked: bool = False) -> int:
    """How many images, of `values` values each, one forward pass takes.

    That is one batch, or several if batches are small and do not depend on each other; each has its own statistics.
    """
    kind = "cuda" if device.type == "cuda" else "cpu"
    largest, values_per_pass = _MAX_GROUPED_BATCH[kind], _VALUES_PER_PASS[kind]
    if attacked and kind == "cuda":
        largest, values_per_pass = batch_size, _VALUES_PER_ATTACK
    strategy = setting.strategy
    depends_on_others = strategy.keeps_state or setting.needs_whole_stream or not strategy.works_on_segments
    if batch_size > largest or depends_on_others:
        return batch_size
    return batch_size * max(1, values_per_pass // (values * batch_size))


def copy_sharing_tensors(model: M) -> M:
    """A copy that can be adapted independently and shares parameters and buffers with the original."""
    tensors: Iterable[Tensor] = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def copy_for_attack(model: Classifier) -> Classifier:
    """Such a copy that takes pixels as floats, so that gradients reach them."""
    copied = copy_sharing_tensors(model)
    copied.normalise.takes_floats = True
    return copied


class Predictor:
    """Predicts a stream, `pass_size` images at a time. Between streams, the state of the strategy is reset.

    With a `graph_stream`, forward passes are CUDA graphs; not those of a strategy that keeps state.
    """

    def __init__(
        self,
        model: AnyModel,
        setting: Setting,
        precision: Precision,
        graph_stream: GraphStream | None,
        batch_size: int,
        pass_size: int,
    ) -> None:
        self.setting, self.batch_size, self.pass_size = setting, batch_size, pass_size
        self._precision = precision
        self.graph_stream = graph_stream if self.is_stateless else None
        self._options = setting.options
        self._device = next(chain(model.parameters(), model.buffers())).device
        self.model: nn.Module = (
            model if setting.is_identity else predictor(copy_sharing_tensors(model), setting.strategy, **self._options)
        )
        self._forward = self._forward_of(self.model)
        self._forward_grouped = self._forward
        if pass_size > batch_size and not setting.is_identity:
            grouped = predictor(copy_sharing_tensors(model), setting.strategy, group=batch_size, **self._options)
            self._forward_grouped = self._forward_of(grouped)

    def _forward_of(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        forward: Callable[[Tensor], Tensor] = partial(_forward, model, self._precision, self._device)
        return forward if self.graph_stream is None else GraphedFunction(forward, self.graph_stream)

    @property
    def is_stateless(self) -> bool:
        """Whether a prediction depends on its own batch only, so that batches may be predicted in any order."""
        return not self.setting.strategy.keeps_state and not self.setting.needs_whole_stream

    def start_stream(self, stream: Callable[[], Iterator[Tensor]]) -> None:
        """Forget the last stream, and collect statistics of the whole new one if the strategy needs them."""
        if self.setting.needs_whole_stream:
            with torch.inference_mode(), casting(self._precision, self._device):
                adapt(self.model, self.setting.strategy, loader=Reiterable(stream), **self._options)
        elif self.setting.strategy.keeps_state:
            reset(self.model)

    def logits(self, images: Tensor) -> Tensor:
        """The logits of `pass_size` images; at the end of a stream of fewer, and the last batch may be smaller too."""
        with torch.inference_mode():
            return self._logits(images)

    def _logits(self, images: Tensor) -> Tensor:
        if self._forward_grouped is self._forward:
            return self._forward(images)
        whole = len(images) // self.batch_size * self.batch_size
        if whole == len(images):
            return self._forward_grouped(images)
        last = self._forward(images[whole:])
        return last if not whole else torch.cat((self._forward_grouped(images[:whole]), last))

    def attacked_logits(self, attack: Attack, images: Tensor, labels: Tensor) -> Tensor:
        """The same if an attacker replaces the last images of each batch, and knows the labels and everything else.

        What the attacker tries out changes no state: a stream remembers the batch that is predicted in the end. The
        model must be one of `copy_for_attack`.
        """
        state = self.state()

        def try_out(pixels: Tensor) -> Tensor:
            logits = self._logits(pixels)
            if state is not None:
                self.load_state(state)
            return logits

        whole = len(images) // self.batch_size * self.batch_size
        logits = []
        with torch.no_grad():
            for part in (slice(whole), slice(whole, None)):
                if rows := len(images[part]):
                    its_attack = attack.on_batches_of(min(self.batch_size, rows))
                    logits.append(self._logits(its_attack.run(try_out, images[part], labels[part])))
        return torch.cat(logits)

    def state(self) -> dict[str, Any] | None:
        """The state of the strategy, so that the predictor can be made again without losing it; None without one."""
        return None if self.is_stateless else state_dict(self.model)

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from the state of another predictor of the same kind."""
        load_state_dict(self.model, state)


def _forward(model: nn.Module, precision: Precision, device: torch.device, images: Tensor) -> Tensor:
    """Not a method of `Predictor`: a bound method would be a reference cycle, which keeps evicted models in memory."""
    with casting(precision, device):
        logits: Tensor = model(images.contiguous(memory_format=layout_of(images)))
    return logits
