"""What was learned from streams: save it, load it, and check that it fits a model."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError

from .adaptation import Adaptation, LayerAdaptation
from .auto.calibration import Calibration
from .layer import adaptations, adapted_layers
from .layers import device_of, fingerprint
from .streams.registry import stream_id
from .streams.state import Packed, States, pack
from .streams.store import Owner, SavedStream

M = TypeVar("M", bound=nn.Module)

_SHAPES = {
    **dict.fromkeys(("mean", "var", "seen_mean", "seen_var", "new_mean", "new_var", "weight"), "C"),
    **dict.fromkeys(("class_means", "class_squares"), "GC"),
    **dict.fromkeys(("class_sizes", "shares", "expected", "new_shares"), "G"),
    "new_size": "1",
    "counts": "2",
    "class_errors": "3",
    "class_sums": "5",
    "clipping": "3C",
}
"""The dimensions of what states and calibrations have by these names: C channels, G groups of classes, or numbers."""
_TOGETHER = (
    ("mean", "var"),
    ("seen_mean", "seen_var", "counts"),
    ("new_mean", "new_var", "new_size"),
    ("shares", "expected", "class_errors", "class_sums"),
    ("class_sizes", "class_means", "class_squares"),
)
_COUNTS = "passes", "done"
_VARIANCES = "var", "seen_var", "new_var"


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

    The model must be adapted with the same strategy and layers; if it is not, or if anything in the state cannot be
    used, nothing is changed.
    """
    adapted = adapted_layers(model)
    layers = {name: layer for name, layer, _ in adapted}
    _check_state(adapted, state)
    streams: dict[Adaptation, dict[Hashable, States]] = {shared: {} for shared in adaptations(model)}
    for key, saved in state["streams"].items():
        states = _copied(saved, layers)
        for shared in streams:
            names = {name: own.name for name, _, own in adapted if own.shared is shared}
            streams[shared][stream_id(key)] = {own: states[name] for name, own in names.items() if name in states}
    calibrations = _copied(state["calibration"], layers)
    new = [(own, Calibration(**calibrations[name])) for name, _, own in adapted if name in calibrations]
    for shared, states_of_streams in streams.items():
        shared.streams.replace(states_of_streams)
    for own, calibration in new:
        own.calibration = calibration
    return model


def _check_state(layers: list[tuple[str, nn.Module, LayerAdaptation]], state: Any) -> None:
    parts = "strategies", "streams", "calibration"
    is_known = isinstance(state, dict) and set(state) == set(parts) and all(isinstance(state[p], dict) for p in parts)
    if not is_known or not all(isinstance(saved, str) for saved in state["strategies"].values()):
        raise AdaptationError("this is not a state saved by predbn.state_dict(model)")
    strategies = {name: str(adaptation.shared.strategy) for name, _, adaptation in layers}
    for name in {**strategies, **state["strategies"]}:
        current, saved = (by_name.get(name, "not adapted") for by_name in (strategies, state["strategies"]))
        if current != saved and {current, saved} != {"train", "not adapted"}:
            raise AdaptationError(f"layer '{name}' is '{current}' in this model and '{saved}' in the saved state")
    by_name = {name: layer for name, layer, _ in layers}
    _check_layers(by_name, state["calibration"], "the calibration", optional=_OPTIONAL)
    for key, saved in state["streams"].items():
        _check_layers(by_name, saved, f"stream '{stream_id(key)}'", state["calibration"])
        unknown = [name for name, values in saved.items() if values and name not in by_name]
        if unknown:
            raise AdaptationError(f"stream '{key}' in the saved state has a layer '{unknown[0]}', which is not adapted")
    for name, values in state["calibration"].items():
        if not set(Calibration._fields) - set(Calibration._field_defaults) <= set(values) <= set(Calibration._fields):
            raise AdaptationError(
                f"the calibration of layer '{name}' does not have the entries that this version of predbn expects; "
                "calibrate the model again and save its state"
            )


_OPTIONAL = {key for key, default in Calibration._field_defaults.items() if default is None}


def _check_layers(
    layers: Mapping[str, nn.Module],
    saved: Any,
    what: str,
    calibrations: Mapping[str, dict[str, Any]] | None = None,
    optional: Collection[str] = (),
) -> None:
    """Refuse what no layer can continue with: entries of other kinds, and values that no strategy saves.

    `optional` entries may be None.
    """
    if not isinstance(saved, dict):
        raise AdaptationError(f"{what} in the saved state is a {type(saved).__name__}, not a dictionary of layers")
    for name, values in saved.items():
        where = f"of layer '{name}' in {what} of the saved state"
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise AdaptationError(f"the entry {where} is no dictionary of names")
        for key, value in values.items():
            if value is None and key in optional:
                continue
            is_number = isinstance(value, int | float)
            if not is_number and (key in _COUNTS or not _is_plain_tensor(value)):
                wanted = "a number" if key in _COUNTS else "a number or a tensor of real numbers"
                raise AdaptationError(f"'{key}' {where} is {value!r}, not {wanted}")
            numbers = torch.as_tensor(value)
            if not (numbers.isfinite() & ((numbers >= 0) | (key not in _VARIANCES))).all():
                raise AdaptationError(
                    f"'{key}' {where} has values that are not finite, or negative variances; load an earlier state, "
                    "or begin anew"
                )
        for keys in _TOGETHER:
            missing = [key for key in keys if values.get(key) is None]
            if missing and len(missing) < len(keys):
                raise AdaptationError(f"'{missing[0]}' {where} is missing, which belongs to the others there")
        if name in layers:
            _check_shapes(name, layers[name], values, (calibrations or {}).get(name, {}))


def _is_plain_tensor(value: Any) -> bool:
    """Whether this is a tensor whose values can be compared."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not (value.is_complex() or value.is_meta)


def _check_shapes(name: str, layer: Any, values: dict[str, Any], calibration: dict[str, Any]) -> None:
    reference = next((t for t in (layer.running_mean, layer.weight) if t is not None), None)
    sizes = {number: int(number) for number in "1235"}
    if reference is not None:
        sizes["C"] = reference.numel()
    if calibration.get("class_sizes") is not None:
        sizes["G"] = len(calibration["class_sizes"])
    for key, dimensions in _SHAPES.items():
        value = values.get(key)
        if value is None:
            continue
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise AdaptationError(f"'{key}' of layer '{name}' in the saved state is {value!r}, not a float tensor")
        wanted = [sizes.setdefault(d, size) for d, size in zip(dimensions, value.shape, strict=False)]
        if value.dim() != len(dimensions) or wanted != list(value.shape):
            raise AdaptationError(
                f"layer '{name}' has {sizes.get('C')} channels, and '{key}' in the saved state has the shape "
                f"{tuple(value.shape)}: it belongs to another model"
            )


def _copied(states: Mapping[str, Mapping[str, Any]], layers: Mapping[str, nn.Module]) -> dict[str, dict[str, Any]]:
    """Copies on the devices of the layers. A tensor that layers share is copied once."""
    copies: dict[tuple[int, Any], Tensor] = {}
    copied: dict[str, dict[str, Any]] = {}
    with torch.inference_mode(False):  # tensors made in inference mode cannot be used with gradients later
        for name in states.keys() & layers.keys():
            device = device_of(layers[name])
            copied[name] = dict(states[name])
            for key, value in states[name].items():
                if isinstance(value, Tensor):
                    if (id(value), device) not in copies:
                        copies[id(value), device] = value.detach().clone().to(device)
                    copied[name][key] = copies[id(value), device]
    return copied


def owner_of(model: nn.Module, adaptation: Adaptation) -> Owner:
    """What the states of an adaptation belong to."""
    names = [own.name for _, _, own in adapted_layers(model) if own.shared is adaptation]
    return {"strategy": str(adaptation.strategy), "network": fingerprint(model, names)}


class Restorer:
    """Checks streams from a store, and moves them to the devices of the layers."""

    def __init__(self, model: nn.Module, adaptation: Adaptation) -> None:
        self._model, self._adaptation = model, adaptation

    @cached_property
    def _layers(self) -> dict[str, nn.Module]:
        return {own.name: layer for _, layer, own in adapted_layers(self._model) if own.shared is self._adaptation}

    @cached_property
    def _devices(self) -> set[torch.device]:
        return {device for layer in self._layers.values() if (device := device_of(layer)) is not None}

    def __call__(self, name: Hashable, saved: SavedStream) -> Packed:
        owner, state = self._adaptation.streams.owner, saved["state"]
        named = {layer for layer, *_ in (*state["tensors"], *state["numbers"])}
        if saved["owner"] != owner or not named <= set(self._layers):
            raise AdaptationError(
                f"stream '{name}' was stored by strategy '{saved['owner']['strategy']}' or for another model, and this "
                f"one has '{self._adaptation.strategy}'; give the model a store of its own"
            )
        packed = Packed.of(state, next(iter(self._devices)) if len(self._devices) == 1 else torch.device("cpu"))
        is_finite = packed.is_finite()
        if is_finite is not None and not is_finite:
            raise AdaptationError(f"stream '{name}' was stored with values that are not finite; remove or reset it")
        return packed if len(self._devices) < 2 else pack(_copied(packed.unpack(), self._layers))
