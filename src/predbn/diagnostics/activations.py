"""Record activations while a model predicts: outputs of batch norm layers, embeddings and logits.

Hooks cannot always read a layer's output before the non-linearity, since some layers have theirs built in. So a hook
reads the input, and the layer's strategy is observed (`PreparedAdaptation`) for the statistics μ, σ² in use. Since
normalising is affine, the spatial mean of the output follows from the spatial mean m of the input,

    ȳ = weight · (m − μ) / √(σ² + eps) + bias.

That holds for every kind of layer, whatever it does afterwards, and no activation map is kept.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from predbn.norm import (
    BatchForward,
    Observation,
    PreparedAdaptation,
    Statistics,
    Strategy,
    Train,
    evaluating,
    find_strategy,
    modules_of,
    named_layers,
    unwrapped,
)

from .inputs import example_moments, name_prefix, observing_inputs

EMBEDDINGS = "embeddings"
LOGITS = "logits"


class ActivationRecorder:
    """Runs a model under one strategy and records its activations batch by batch.

    Between two runs the model is exactly as it was, so several recorders can share one model. Each keeps the state of
    its own strategy. `options` go to `predbn.adapt`.
    """

    def __init__(
        self, model: nn.Module, strategy: str | Strategy = "train", *, outputs: bool = True, **options: Any
    ) -> None:
        self.model = unwrapped(model)
        self._forward = BatchForward(model)
        self._layers = dict(named_layers(self.model)) if outputs else {}
        self._means: dict[str, Tensor] = {}
        self._outputs: dict[str, Tensor] = {}
        self._adaptation: PreparedAdaptation | None = None
        if next(named_layers(self.model), None) is not None or not isinstance(find_strategy(strategy), Train):
            observer = self._record_output if outputs else None
            self._adaptation = PreparedAdaptation(self.model, strategy, observer=observer, **options)

    def run(self, batch: Any) -> tuple[int, dict[str, Tensor]]:
        """Predict a batch in `.eval()` mode without gradients: the number of examples, and [n, columns] by name.

        These are the outputs of the layers in the order of the calls, those of several calls concatenated; the
        embeddings, which are the input of the last linear layer; and the logits.
        """
        self._outputs = outputs = {}
        linear_inputs: dict[nn.Linear, Tensor] = {}
        with ExitStack() as stack:
            stack.callback(self._means.clear)
            stack.enter_context(evaluating(self.model))
            if self._adaptation is not None:
                stack.enter_context(self._adaptation.active())
            stack.enter_context(observing_inputs(self._layers, self._record_input))
            for module in modules_of(self.model):
                if isinstance(module, nn.Linear):
                    hook = partial(_record_linear, linear_inputs)
                    stack.callback(module.register_forward_pre_hook(hook).remove)
            logits = self._forward(batch)
        if isinstance(logits, Tensor) and logits.dim() in (1, 2) and logits.is_floating_point():
            logits = logits if logits.dim() == 2 else logits[:, None]
            matching = [module for module in linear_inputs if module.out_features == logits.shape[1]]
            if matching:
                outputs[EMBEDDINGS] = linear_inputs[matching[-1]]
            outputs[LOGITS] = logits
        return self._forward.examples, outputs

    def _record_input(self, name: str, x: Tensor) -> None:
        self._means[name] = example_moments(x, self._forward.examples)[0]

    def _record_output(self, observation: Observation, statistics: Statistics) -> None:
        layer: Any = self._layers[observation.layer]
        input_mean = self._means.pop(observation.layer)
        mean, var = (t.to(input_mean) for t in statistics)
        values = (input_mean - mean) * torch.rsqrt(var + observation.eps)
        if layer.weight is not None:
            values = values * layer.weight.to(values)
        if layer.bias is not None:
            values = values + layer.bias.to(values)
        name, outputs = observation.layer.removeprefix(name_prefix(self.model)), self._outputs
        outputs[name] = torch.cat((outputs[name], values)) if name in outputs else values


def _record_linear(inputs: dict[nn.Linear, Tensor], module: nn.Linear, args: tuple[Any, ...]) -> None:
    """Keep the input of a linear layer, in the order of the last calls."""
    inputs.pop(module, None)
    if args and isinstance(args[0], Tensor) and args[0].dim() == 2:
        inputs[module] = args[0]
