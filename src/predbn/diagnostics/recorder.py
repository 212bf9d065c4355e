"""Record activations while a model predicts: outputs of batch norm layers, embeddings and logits.

Hooks cannot always read a layer's output before the non-linearity, since some layers have theirs built in. The
recorder observes the layer's strategy instead (`PreparedAdaptation`): it knows the statistics μ, σ² in use, and since
normalising is affine, the spatial mean of the output follows from the spatial mean m of the input,

    ȳ = weight · (m − μ) / √(σ² + eps) + bias.

That holds for every kind of layer, whatever it does afterwards, and no activation map is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import DiagnosticError
from predbn.models import Classifier
from predbn.norm import (
    BatchForward,
    Forward,
    Layers,
    Observation,
    Population,
    PreparedAdaptation,
    Statistics,
    Strategy,
    Train,
    evaluating,
    find_strategy,
    named_layers,
    unwrapped,
)


@dataclass
class BatchActivations:
    """The activations of one batch: [n, channels] per layer in the order of the calls, embeddings and logits.

    `examples` is how many examples the batch has.
    """

    examples: int = 0
    layers: dict[str, Tensor] = field(default_factory=dict)
    embeddings: Tensor | None = None
    logits: Tensor | None = None

    def add(self, layer: str, values: Tensor) -> None:
        """Add a layer's values; those of a layer that is called several times are concatenated."""
        self.layers[layer] = torch.cat((self.layers[layer], values)) if layer in self.layers else values


def name_prefix(model: nn.Module) -> str:
    """What the layer names of a model begin with that its user does not know: the name of a classifier's network."""
    return "network." if isinstance(model, Classifier) else ""


class ActivationRecorder:
    """Runs a model under one strategy and records its activations batch by batch.

    Between two runs the model is exactly as it was, so several recorders can share one model. Each keeps the state of
    its own strategy. `options` go to `predbn.adapt`.

    outputs    which batch norm layers to record, as `layers` of `predbn.adapt`; None for none, which is faster
    embedding  the module whose input is the embedding; by default the last linear layer that gives the logits
    forward    called as forward(model, batch) to predict a batch, if the default does not fit
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: str | Strategy = "train",
        *,
        outputs: Layers | None = "all",
        embedding: str | None = None,
        forward: Forward | None = None,
        **options: Any,
    ) -> None:
        self.model = unwrapped(model)
        self._forward = BatchForward(model, forward)
        self._prefix = name_prefix(self.model)
        self._layers = dict(named_layers(self.model))
        self._current = BatchActivations()
        self._head = None if embedding is None else self._module(embedding)
        self._adaptation: PreparedAdaptation | None = None
        if isinstance(find_strategy(strategy), Population):
            options |= {"forward": forward}
        if self._layers or not isinstance(find_strategy(strategy), Train):
            if outputs is not None:
                options |= {"observer": self._record_layer, "observed": outputs}
            self._adaptation = PreparedAdaptation(self.model, strategy, **options)

    def run(self, batch: Any) -> BatchActivations:
        """Predict a batch in `.eval()` mode without gradients, and return the activations."""
        self._current = activations = BatchActivations()
        head_inputs: dict[nn.Module, Tensor] = {}
        try:
            with ExitStack() as stack:
                stack.enter_context(evaluating(self.model))
                if self._adaptation is not None:
                    stack.enter_context(self._adaptation.active())
                stack.enter_context(self._recording_inputs(head_inputs))
                logits = self._forward(batch)
                activations.examples = self._forward.examples
        finally:
            self._current = BatchActivations()
        if isinstance(logits, Tensor) and logits.dim() in (1, 2) and logits.is_floating_point():
            activations.logits = logits if logits.dim() == 2 else logits[:, None]
            if self._head is None:
                self._head = _last_linear(head_inputs, activations.logits.shape[1])
        if self._head is not None and self._head in head_inputs:
            activations.embeddings = head_inputs[self._head]
        return activations

    def _record_layer(self, observation: Observation, statistics: Statistics) -> None:
        layer: Any = self._layers[observation.layer]
        input_mean, _ = observation.example_moments()
        mean, var = (t.to(input_mean) for t in statistics)
        values = (input_mean - mean) * torch.rsqrt(var + observation.eps)
        if layer.weight is not None:
            values = values * layer.weight.to(values)
        if layer.bias is not None:
            values = values + layer.bias.to(values)
        self._current.add(observation.layer.removeprefix(self._prefix), values)

    @contextmanager
    def _recording_inputs(self, inputs: dict[nn.Module, Tensor]) -> Iterator[None]:
        """Record the input of the head; as long as it is not known, that of every linear layer, in call order."""

        def record(module: nn.Module, args: tuple[Any, ...]) -> None:
            x = args[0] if args else None
            inputs.pop(module, None)
            if isinstance(x, Tensor) and (x.dim() == 2 or (x.dim() > 2 and module is self._head)):
                positions = range(1, x.dim() - 1) if isinstance(module, nn.Linear) else range(2, x.dim())
                inputs[module] = x.mean(list(positions), dtype=torch.float32) if x.dim() > 2 else x

        candidates = [m for m in self.model.modules() if isinstance(m, nn.Linear)]
        with ExitStack() as stack:
            for module in candidates if self._head is None else [self._head]:
                stack.callback(module.register_forward_pre_hook(record).remove)
            yield

    def _module(self, name: str) -> nn.Module:
        modules: dict[str, nn.Module] = dict(self.model.named_modules())
        for full_name in (self._prefix + name, name):
            if full_name in modules:
                return modules[full_name]
        raise DiagnosticError(f"The model has no module {name!r} to take the embedding from: see named_modules().")


def _last_linear(inputs: dict[nn.Module, Tensor], classes: int) -> nn.Module | None:
    """The linear layer that was called last among those with as many outputs as there are logits."""
    matching = [module for module in inputs if getattr(module, "out_features", None) == classes]
    return matching[-1] if matching else None
