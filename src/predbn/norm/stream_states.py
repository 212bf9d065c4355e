"""What is remembered about one stream, to be kept elsewhere and brought back."""

from __future__ import annotations

from typing import Any

from torch import nn

from .adapted_layer import adapted_layers
from .layers import device_of
from .streams import _check_channels, _copied, adaptations


def stream_state(model: nn.Module, name: str | int) -> dict[str, dict[str, Any]]:
    """The state of each layer for a stream, as tensors and integers; empty if nothing is remembered about it."""
    copies = {shared: shared.streams[name].copied_states() for shared in adaptations(model) if name in shared.streams}
    states = {
        layer_name: copies.get(adaptation.shared, {}).get(adaptation.name, {})
        for layer_name, _, adaptation in adapted_layers(model)
    }
    return {layer_name: state for layer_name, state in states.items() if state}


def load_stream_state(model: nn.Module, name: str | int, states: dict[str, dict[str, Any]]) -> None:
    """Continue a stream from its saved state. Other streams stay as they are; if it does not fit, nothing changes."""
    layers = adapted_layers(model)
    for layer_name, layer, _ in layers:
        _check_channels(layer_name, layer, states.get(layer_name, {}))
    for shared in adaptations(model):
        (memory,) = shared.streams.open([name])
        memory.clear()
        memory.states = {
            adaptation.name: _copied(states[layer_name], device_of(layer))
            for layer_name, layer, adaptation in layers
            if adaptation.shared is shared and layer_name in states
        }
