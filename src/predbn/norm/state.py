"""What was learned from streams: save it, load it, and check that it fits a model."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

from torch import Tensor, nn

from predbn.common import AdaptationError

from .adaptation import Adaptation, LayerAdaptation
from .auto.calibration import Calibration
from .layer import adaptations, adapted_layers
from .layers import device_of
from .streams.state import States
from .streams.store import SavedStream

M = TypeVar("M", bound=nn.Module)

_PER_CHANNEL = "mean", "var", "seen_mean", "seen_var", "new_mean", "new_var", "weight", "class_means", "class_squares"
"""What states and calibrations have for each channel."""


def state_dict(model: nn.Module) -> dict[str, Any]:
    """What the strategies have learned, as plain tensors and numbers.

    Save it with ``torch.save`` and read it with ``torch.load(…, weights_only=True)``. It does not contain the model's
    own state dict, nor streams that are in a store and not in memory: `save_streams` brings a store up to date.
    """
    copies = {
        shared: {key: memory.copied_states() for key, memory in shared.streams.items()} for shared in adaptations(model)
    }
    layers = adapted_layers(model)
    streams: dict[Hashable, Any] = {}
    for name, _, adaptation in layers:
        for key, states in copies[adaptation.shared].items():
            streams.setdefault(key, {})[name] = states.get(adaptation.name, {})
    return {
        "strategies": {name: str(adaptation.shared.strategy) for name, _, adaptation in layers},
        "streams": streams,
        "calibration": {
            name: adaptation.calibration._asdict()
            for name, _, adaptation in layers
            if adaptation.calibration is not None
        },
    }


def load_state_dict(model: M, state: dict[str, Any]) -> M:
    """Continue from a saved state. Streams in memory that it does not contain begin anew; a store stays as it is.

    The model must be adapted with the same strategy and layers; if it is not, nothing is changed.
    """
    shared_adaptations, layers = adaptations(model), adapted_layers(model)
    _check_state(layers, state)
    for shared in shared_adaptations:
        for memory in shared.streams.values():  # cleared and not replaced: blocks may hold them
            memory.clear()
    for name, layer, adaptation in layers:
        device = device_of(layer)
        for key, saved in state["streams"].items():
            values = _copied(saved.get(name, {}), device)
            adaptation.shared.streams.begin(key).set_state(adaptation.name, values)
        if name in state["calibration"]:
            adaptation.calibration = Calibration(**_copied(state["calibration"][name], device))
    return model


def _check_state(layers: list[tuple[str, nn.Module, LayerAdaptation]], state: dict[str, Any]) -> None:
    if set(state) != {"strategies", "streams", "calibration"}:
        raise AdaptationError("this is not a state saved by predbn.state_dict(model)")
    strategies = {name: str(adaptation.shared.strategy) for name, _, adaptation in layers}
    for name in {**strategies, **state["strategies"]}:
        current, saved = (by_name.get(name, "not adapted") for by_name in (strategies, state["strategies"]))
        if current != saved and {current, saved} != {"train", "not adapted"}:
            raise AdaptationError(f"layer '{name}' is '{current}' in this model and '{saved}' in the saved state")
    for name, layer, _ in layers:
        for saved_stream in state["streams"].values():
            _check_channels(name, layer, saved_stream.get(name, {}))
        _check_channels(name, layer, state["calibration"].get(name, {}))
    for name, values in state["calibration"].items():
        if not set(Calibration._fields) - set(Calibration._field_defaults) <= set(values) <= set(Calibration._fields):
            raise AdaptationError(
                f"the calibration of layer '{name}' does not have the entries that this version of predbn expects; "
                "calibrate the model again and save its state"
            )


def _check_channels(name: str, layer: Any, values: dict[str, Any]) -> None:
    reference = next((t for t in (layer.running_mean, layer.weight) if t is not None), None)
    for key in _PER_CHANNEL:
        value = values.get(key)
        if reference is not None and value is not None and value.shape[-1:] != reference.shape:
            raise AdaptationError(
                f"layer '{name}' has {reference.numel()} channels, the saved state has {value.shape[-1]}: "
                "it belongs to another model"
            )


def _copied(values: dict[str, Any], device: Any) -> dict[str, Any]:
    return {k: v.detach().clone().to(device) if isinstance(v, Tensor) else v for k, v in values.items()}


def restored(model: nn.Module, adaptation: Adaptation, name: Hashable, saved: SavedStream) -> States:
    """A stream from a store, checked, on the devices of the layers."""
    layers = {layer_own.name: layer for _, layer, layer_own in adapted_layers(model) if layer_own.shared is adaptation}
    if saved["strategy"] != adaptation.streams.strategy or not set(saved["layers"]) <= set(layers):
        raise AdaptationError(
            f"stream '{name}' was stored by strategy '{saved['strategy']}' or for another model, and this one has "
            f"'{adaptation.streams.strategy}'; give the model a store of its own"
        )
    for layer, state in saved["layers"].items():
        _check_channels(layer, layers[layer], state)
    return {layer: _copied(state, device_of(layers[layer])) for layer, state in saved["layers"].items()}
