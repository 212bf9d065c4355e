"""Look into a model while it predicts: what its batch norm layers give, what its last layer takes, its logits.

A layer's output before the non-linearity cannot always be read off a hook, since some layers have theirs built in.
So the strategy of each layer is wrapped in one that takes notes, as `predbn.norm` itself does to collect
statistics: it knows the statistics μ, σ² in use, and since normalising is affine, the spatial mean of what the layer
gives follows from the spatial mean m of what it takes,

    ȳ = weight · (m − μ) / √(σ² + eps) + bias.

That holds for every kind of layer, whatever it does afterwards, and no activation is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import DiagnosticError
from predbn.models import Classifier
from predbn.norm import (
    Adaptation,
    Layers,
    Observation,
    Slot,
    Statistics,
    Strategy,
    Train,
    adapted,
    fit,
    named_layers,
    no_batch_norm,
    slot_of,
    unwrapped,
)
from predbn.norm import select_layers as select

__all__ = ["Pass", "Watch"]

Note = Callable[[Observation, Statistics], None]


@dataclass(frozen=True)
class _Watched(Strategy):
    """Another strategy, with a note taken of every call."""

    inner: Strategy
    note: Note

    def statistics(self, observation: Observation) -> Statistics:
        statistics = self.inner.statistics(observation)
        self.note(observation, statistics)
        return statistics


@dataclass
class Pass:
    """What one batch left: [n, channels] for each layer in the order of the calls, and the last layer's two sides."""

    layers: dict[str, Tensor] = field(default_factory=dict)
    embeddings: Tensor | None = None
    logits: Tensor | None = None

    def add(self, name: str, values: Tensor) -> None:
        """Note a layer's values; those of a layer that is called several times are put together."""
        self.layers[name] = torch.cat((self.layers[name], values)) if name in self.layers else values


class Watch:
    """A model under one strategy, looked into batch by batch with `run`.

    Between two runs the model is exactly as it was, so that several watches may share one. Each has state of its
    own for strategies that keep some. `options` go to `predbn.adapt`.

    outputs    which batch norm layers to watch: as `layers` of `predbn.adapt`, or None for none, which is faster
    embedding  the module whose input is the embedding; the last linear layer that gives the logits unless given
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: str | Strategy = "train",
        *,
        outputs: Layers | None = "all",
        embedding: str | None = None,
        **options: Any,
    ) -> None:
        self.model = unwrapped(model)
        self._prefix = "network." if isinstance(self.model, Classifier) else ""
        self._layers = dict(named_layers(self.model))
        self._pass = Pass()
        self._head = None if embedding is None else self._module(embedding)
        self._slots = self._adapt(strategy, outputs, options)

    def run(self, x: Tensor) -> Pass:
        """Predict a batch in `.eval()` mode without gradients, and say what was seen."""
        self._pass = seen = Pass()
        linear: dict[nn.Module, Tensor] = {}
        try:
            with _evaluating(self.model), self._fitted(), self._listening(linear):
                logits = self.model(x)
        finally:
            self._pass = Pass()
        if isinstance(logits, Tensor) and logits.dim() in (1, 2) and logits.is_floating_point():
            seen.logits = logits if logits.dim() == 2 else logits[:, None]
            if self._head is None:
                self._head = _last(linear, seen.logits.shape[1])
        if self._head is not None and self._head in linear:
            seen.embeddings = linear[self._head]
        return seen

    def _adapt(self, strategy: str | Strategy, outputs: Layers | None, options: dict[str, Any]) -> list[Slot | None]:
        if not self._layers:
            if strategy == "train" or isinstance(strategy, Train):
                return []
            raise no_batch_norm(self.model)
        with adapted(self.model, strategy, **options):
            slots = [slot_of(layer) for layer in self._layers.values()]
        if outputs is None:
            return slots
        chosen = {name for name, _ in select(self.model, outputs)}
        watched: list[Slot | None] = []
        for name, slot in zip(self._layers, slots, strict=True):
            if slot is None and name in chosen:
                slot = Slot(name, Adaptation(Train(), None, False, None))
            if slot is not None and not isinstance(slot.adaptation.strategy, _Watched):
                slot.adaptation.strategy = _Watched(slot.adaptation.strategy, self._noting(chosen))
            watched.append(slot)
        return watched

    def _noting(self, chosen: set[str]) -> Note:
        def note(observation: Observation, statistics: Statistics) -> None:
            if observation.layer not in chosen:
                return
            layer: Any = self._layers[observation.layer]
            slot = slot_of(layer)
            assert slot is not None
            mean, _ = observation.example_moments()
            centre, var = (t.to(mean) for t in statistics)
            values = (mean - centre) * torch.rsqrt(var + slot.eps(layer))
            if layer.weight is not None:
                values = values * layer.weight.to(mean)
            if layer.bias is not None:
                values = values + layer.bias.to(mean)
            self._pass.add(observation.layer.removeprefix(self._prefix), values)

        return note

    @contextmanager
    def _fitted(self) -> Iterator[None]:
        """The layers with this watch's strategy; then with what they had."""
        layers = list(self._layers.values())
        before = [slot_of(layer) for layer in layers]
        try:
            for layer, slot in zip(layers, self._slots, strict=True):
                fit(layer, slot)
            yield
        finally:
            for layer, slot in zip(layers, before, strict=True):
                fit(layer, slot)

    @contextmanager
    def _listening(self, heard: dict[nn.Module, Tensor]) -> Iterator[None]:
        """Note what the head takes; before it is known, what every linear layer takes, in the order of the calls."""

        def hear(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            x = inputs[0] if inputs else None
            heard.pop(module, None)
            if isinstance(x, Tensor) and (x.dim() == 2 or (x.dim() > 2 and module is self._head)):
                positions = range(1, x.dim() - 1) if isinstance(module, nn.Linear) else range(2, x.dim())
                heard[module] = x.mean(list(positions), dtype=torch.float32) if x.dim() > 2 else x

        heads = (
            [self._head] if self._head is not None else [m for m in self.model.modules() if isinstance(m, nn.Linear)]
        )
        with ExitStack() as stack:
            for head in heads:
                stack.callback(head.register_forward_pre_hook(hear).remove)
            yield

    def _module(self, name: str) -> nn.Module:
        modules: dict[str, nn.Module] = dict(self.model.named_modules())
        for full in (self._prefix + name, name):
            if full in modules:
                return modules[full]
        raise DiagnosticError(f"The model has no module {name!r} to take the embedding from: see named_modules().")


def _last(heard: dict[nn.Module, Tensor], classes: int) -> nn.Module | None:
    """The linear layer called last among those that give as many numbers as there are logits, from vectors."""
    fitting = [module for module in heard if getattr(module, "out_features", None) == classes]
    return fitting[-1] if fitting else None


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """`.eval()` mode, eagerly and without gradients; then the mode that each module had."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        for module, training in flags:
            module.training = training
