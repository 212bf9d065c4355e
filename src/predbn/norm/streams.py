"""Streams and their state: switch, reset, save, load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

from predbn.common import AdaptationError

from .calibration import Calibration
from .kinds import device_of, named_layers
from .layer import HOME, Adaptation, Slot, slot_of
from .stream import Stream

M = TypeVar("M", bound=nn.Module)


def slots(model: nn.Module) -> list[tuple[str, nn.Module, Slot]]:
    found = ((name, layer, slot_of(layer)) for name, layer in named_layers(model))
    return [(name, layer, slot) for name, layer, slot in found if slot is not None]


def adaptations(model: nn.Module) -> list[Adaptation]:
    """The adaptations in a model: one, unless parts of it were adapted apart."""
    unique = {id(slot.adaptation): slot.adaptation for _, _, slot in slots(model)}
    if not unique:
        raise AdaptationError("the model is not adapted; call predbn.adapt(model, …) first")
    return list(unique.values())


@contextmanager
def stream(model: M, name: str) -> Iterator[M]:
    """Predict for one of several sources: what `frozen` and `ema` remember is kept apart for each name.

    Another thread that enters a stream of the same model waits, so streams never mix.
    """
    with ExitStack() as stack:
        for adaptation in adaptations(model):
            stack.enter_context(adaptation.lock)
            stack.callback(setattr, adaptation, "stream", adaptation.stream)
            adaptation.stream = adaptation.streams.setdefault(name, Stream())
        yield model


def reset(model: M, stream: str | None = None) -> M:
    """Forget what was learned from all streams, or from one. Population statistics and calibration stay."""
    for adaptation in adaptations(model):
        if not adaptation.strategy.keeps_state:
            continue
        if stream is not None and stream not in adaptation.streams:
            raise AdaptationError(f"there is no stream '{stream}'; there are {', '.join(adaptation.streams)}")
        for name, one in adaptation.streams.items():
            if stream in (None, name):
                one.clear()
    return model


def state_dict(model: nn.Module) -> dict[str, Any]:
    """What the strategies have learned, as plain tensors and numbers: ``torch.save`` it, and load it
    with ``torch.load(…, weights_only=True)``. The model's own state dict is not in it."""
    adaptations(model)
    found = slots(model)
    streams: dict[str, Any] = {}
    for name, _, slot in found:
        for key, one in slot.adaptation.streams.items():
            saved = streams.setdefault(key, {"passes": one.passes, "layers": {}})
            saved["layers"][name] = dict(one.states.get(slot.name, {}))
    return {
        "strategies": {name: str(slot.adaptation.strategy) for name, _, slot in found},
        "streams": streams,
        "calibration": {name: slot.calibration._asdict() for name, _, slot in found if slot.calibration is not None},
    }


def load_state_dict(model: M, state: dict[str, Any]) -> M:
    """Go on from a saved state. The model must be adapted with the same strategy and layers; nothing is
    changed if it is not."""
    adaptations(model)
    found = slots(model)
    strategies = {name: str(slot.adaptation.strategy) for name, _, slot in found}
    if set(state) != {"strategies", "streams", "calibration"}:
        raise AdaptationError("this is not a state saved by predbn.state_dict(model)")
    for name in {**strategies, **state["strategies"]}:
        here, there = strategies.get(name, "not adapted"), state["strategies"].get(name, "not adapted")
        if here != there:
            raise AdaptationError(f"layer '{name}' is '{here}' in this model and '{there}' in the saved state")
    for saved in state["streams"].values():
        for name, layer, _ in found:
            _check_channels(name, layer, saved["layers"].get(name, {}))
    for name, values in state["calibration"].items():
        if set(values) != set(Calibration._fields):
            raise AdaptationError(
                f"the calibration of layer '{name}' was saved by another version of predbn; calibrate the model again "
                "and save its state anew"
            )
    for adaptation in adaptations(model):
        adaptation.streams = {key: Stream() for key in {HOME: None, **state["streams"]}}
        adaptation.stream = adaptation.streams[HOME]
        for key, saved in state["streams"].items():
            adaptation.streams[key].passes = saved["passes"]
    for name, layer, slot in found:
        device = device_of(layer)
        for key, saved in state["streams"].items():
            values = saved["layers"].get(name, {})
            slot.adaptation.streams[key].states[slot.name] = _copied(values, device)
        if name in state["calibration"]:
            slot.calibration = Calibration(**_copied(state["calibration"][name], device))
    return model


def _copied(values: dict[str, Any], device: Any) -> dict[str, Any]:
    return {k: v.detach().clone().to(device) if isinstance(v, Tensor) else v for k, v in values.items()}


def _check_channels(name: str, layer: Any, values: dict[str, Any]) -> None:
    reference = next((t for t in (layer.running_mean, layer.weight) if t is not None), None)
    mean = values.get("mean")
    if reference is not None and mean is not None and mean.shape != reference.shape:
        raise AdaptationError(
            f"layer '{name}' has {reference.numel()} channels, the saved state has {mean.numel()}: another model's"
        )
