"""What is remembered about one stream, to be kept elsewhere and brought back."""

from __future__ import annotations

from typing import Any

from torch import nn

from .adapted_layer import adapted_layers
from .layers import device_of
from .passes import Stream
from .streams import _check_channels, _copied, adaptations


def stream_state(model: nn.Module, name: str | int) -> dict[str, dict[str, Any]]:
    """The state of each layer for a stream, as tensors and integers; empty if nothing is remembered about it.

    The tensors are those in use and not copies: a pass replaces them and never changes them.
    """
    states = {}
    for layer_name, _, adaptation in adapted_layers(model):
        memory = adaptation.shared.streams.get(name)
        state = {} if memory is None else memory.states.get(adaptation.name)
        if state:
            states[layer_name] = dict(state)
    return states


def load_stream_state(model: nn.Module, name: str | int, states: dict[str, dict[str, Any]]) -> None:
    """Continue a stream from its saved state. Other streams stay as they are; if it does not fit, nothing changes."""
    adaptations(model)
    layers = adapted_layers(model)
    for layer_name, layer, _ in layers:
        _check_channels(layer_name, layer, states.get(layer_name, {}))
    for layer_name, layer, adaptation in layers:
        values = _copied(states.get(layer_name, {}), device_of(layer))
        adaptation.shared.streams.setdefault(name, Stream()).states[adaptation.name] = values
