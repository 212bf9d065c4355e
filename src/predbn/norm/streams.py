"""Streams and what was learned from them: switch, forget, save, load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

from predbn.common import AdaptationError

from .adapted_layer import DEFAULT_STREAM, Adaptation, LayerAdaptation, adapted_layers
from .calibration import Calibration
from .layers import device_of
from .observation import Stream

M = TypeVar("M", bound=nn.Module)


def adaptations(model: nn.Module) -> list[Adaptation]:
    """The adaptations in a model: one, unless parts of it were adapted separately."""
    unique = {id(adaptation.shared): adaptation.shared for _, _, adaptation in adapted_layers(model)}
    if not unique:
        raise AdaptationError("the model is not adapted; call predbn.adapt(model, …) first")
    return list(unique.values())


def unknown_stream_error(name: str, adaptation: Adaptation) -> AdaptationError:
    return AdaptationError(f"there is no stream '{name}'; there are {', '.join(adaptation.streams)}")


@contextmanager
def stream(model: M, name: str) -> Iterator[M]:
    """Predict for one of several sources: what strategies such as `ema` remember is kept separately for each name.

    Another thread that enters a stream of the same model waits, so streams never mix.
    """
    with ExitStack() as stack:
        for adaptation in adaptations(model):
            stack.enter_context(adaptation.lock)
            stack.callback(setattr, adaptation, "stream", adaptation.stream)
            adaptation.stream = adaptation.streams.setdefault(name, Stream())
        yield model


def reset(model: M, stream: str | None = None) -> M:
    """Forget what was learned from one stream, by default from all. Population statistics and calibration stay."""
    for adaptation in adaptations(model):
        if not adaptation.strategy.keeps_state:
            continue
        if stream is not None and stream not in adaptation.streams:
            raise unknown_stream_error(stream, adaptation)
        for name, memory in adaptation.streams.items():
            if stream in (None, name):
                memory.clear()
    return model


def state_dict(model: nn.Module) -> dict[str, Any]:
    """What the strategies have learned, as plain tensors and numbers.

    Save it with ``torch.save`` and read it with ``torch.load(…, weights_only=True)``. It does not contain the model's
    own state dict.
    """
    adaptations(model)
    layers = adapted_layers(model)
    streams: dict[str, Any] = {}
    for name, _, adaptation in layers:
        for key, memory in adaptation.shared.streams.items():
            saved = streams.setdefault(key, {"passes": memory.passes, "layers": {}})
            saved["layers"][name] = dict(memory.states.get(adaptation.name, {}))
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
    """Continue from a saved state.

    The model must be adapted with the same strategy and layers; if it is not, nothing is changed.
    """
    shared_adaptations, layers = adaptations(model), adapted_layers(model)
    _check_state(layers, state)
    for shared in shared_adaptations:
        shared.streams = {key: Stream() for key in {DEFAULT_STREAM: None, **state["streams"]}}
        shared.stream = shared.streams[DEFAULT_STREAM]
        for key, saved in state["streams"].items():
            shared.streams[key].passes = saved["passes"]
    for name, layer, adaptation in layers:
        device = device_of(layer)
        for key, saved in state["streams"].items():
            values = saved["layers"].get(name, {})
            adaptation.shared.streams[key].states[adaptation.name] = _copied(values, device)
        if name in state["calibration"]:
            adaptation.calibration = Calibration(**_copied(state["calibration"][name], device))
    return model


def _check_state(layers: list[tuple[str, nn.Module, LayerAdaptation]], state: dict[str, Any]) -> None:
    if set(state) != {"strategies", "streams", "calibration"}:
        raise AdaptationError("this is not a state saved by predbn.state_dict(model)")
    strategies = {name: str(adaptation.shared.strategy) for name, _, adaptation in layers}
    for name in {**strategies, **state["strategies"]}:
        current, saved = (by_name.get(name, "not adapted") for by_name in (strategies, state["strategies"]))
        if current != saved:
            raise AdaptationError(f"layer '{name}' is '{current}' in this model and '{saved}' in the saved state")
    for saved_stream in state["streams"].values():
        for name, layer, _ in layers:
            _check_channels(name, layer, saved_stream["layers"].get(name, {}))
    for name, values in state["calibration"].items():
        if set(values) != set(Calibration._fields):
            raise AdaptationError(
                f"the calibration of layer '{name}' was saved by another version of predbn; calibrate the model again "
                "and save its state anew"
            )


def _check_channels(name: str, layer: Any, values: dict[str, Any]) -> None:
    reference = next((t for t in (layer.running_mean, layer.weight) if t is not None), None)
    mean = values.get("mean")
    if reference is not None and mean is not None and mean.shape != reference.shape:
        raise AdaptationError(
            f"layer '{name}' has {reference.numel()} channels, the saved state has {mean.numel()}: it belongs to "
            "another model"
        )


def _copied(values: dict[str, Any], device: Any) -> dict[str, Any]:
    return {k: v.detach().clone().to(device) if isinstance(v, Tensor) else v for k, v in values.items()}
