"""Streams and what was learned from them: switch, forget, save, load."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

from predbn.common import AdaptationError

from .adapted_layer import Adaptation, LayerAdaptation, adapted_layers
from .calibration import Calibration
from .layers import device_of
from .stream_blocks import Selection, current_selection, open_blocks
from .stream_registry import DEFAULT_STREAM
from .stream_rows import StreamRows

M = TypeVar("M", bound=nn.Module)

_PER_CHANNEL = "mean", "var", "seen_mean", "seen_var", "new_mean", "new_var", "weight", "class_means", "class_squares"
"""What states and calibrations have for each channel."""


def adaptations(model: nn.Module) -> list[Adaptation]:
    """The adaptations in a model: one, unless parts of it were adapted separately."""
    unique = {id(adaptation.shared): adaptation.shared for _, _, adaptation in adapted_layers(model)}
    if not unique:
        raise AdaptationError("the model is not adapted; call predbn.adapt(model, …) first")
    return list(unique.values())


def unknown_stream_error(name: Hashable, adaptation: Adaptation) -> AdaptationError:
    return AdaptationError(f"there is no stream '{name}'; there are {', '.join(map(str, adaptation.streams))}")


@contextmanager
def stream(model: M, name: str | int) -> Iterator[M]:
    """Predict for one of several sources: what strategies such as `ema` remember is kept separately for each name.

    Threads and coroutines have streams of their own: a block in one of them is not seen in another, except by those
    that it starts with its context (`asyncio.create_task`, `asyncio.to_thread`). In a generator a block holds while the
    generator runs, and not while it waits to be resumed; in one decorated with `contextlib.contextmanager` it holds
    until the end of the decorated function. Passes of several threads on the same stream take turns.
    """
    selections = [(adaptation, Selection(adaptation.streams.open([name]))) for adaptation in adaptations(model)]
    with open_blocks(selections):
        yield model


@contextmanager
def streams(model: M, ids: Iterable[Hashable]) -> Iterator[M]:
    """Predict batches whose examples belong to several sources: `ids` are the names of their streams, one per example.

    Every example is predicted as if the batch held its stream alone: with the statistics of the examples of its own
    stream, and with what the strategy remembers of that stream. All streams go through the model together. A stream is
    the same one as in `predbn.stream(model, name)`, which is for batches of a single source.
    """
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise AdaptationError(f"predbn.streams(model, …) got {ids!r}; it takes a list with the stream of each example")
    rows = StreamRows(_hashable(ids.tolist() if hasattr(ids, "tolist") else ids))
    selections = []
    for adaptation in adaptations(model):
        _check_streams(adaptation)
        is_one = len(rows.names) == 1
        opened = adaptation.streams.open(rows.names)
        selections.append((adaptation, Selection(opened, None if is_one else rows, len(rows))))
    with open_blocks(selections):
        yield model


def _hashable(ids: Iterable[Any]) -> list[Hashable]:
    found = []
    for name in ids:
        try:
            hash(name)
        except TypeError:
            raise AdaptationError(
                f"predbn.streams(model, …) got {name!r} as the id of a stream; it takes texts and numbers"
            ) from None
        found.append(name)
    return found


def _check_streams(adaptation: Adaptation) -> None:
    if adaptation.sync:
        raise AdaptationError("streams are rows of this process's batch, but sync=True pools those of all: drop one")
    if adaptation.group is not None:
        raise AdaptationError("a model that was adapted with a group takes no streams: every group stands for one")
    if not adaptation.strategy.works_in_streams:
        raise AdaptationError(
            f"strategy '{adaptation.strategy}' predicts one stream at a time; use predbn.stream(model, name)"
        )


def remove_stream(model: M, name: str | int) -> M:
    """Forget a stream altogether, for example when a camera is switched off. It must not be in use."""
    holders = [adaptation for adaptation in adaptations(model) if name in adaptation.streams]
    if not holders:
        raise unknown_stream_error(name, adaptations(model)[0])
    if name == DEFAULT_STREAM or any(holder.streams[name] in current_selection(holder).streams for holder in holders):
        reason = "is used outside of all stream blocks" if name == DEFAULT_STREAM else "is open here"
        raise AdaptationError(f"stream '{name}' {reason} and cannot be removed; predbn.reset(model, …) clears it")
    for holder in holders:
        holder.streams.remove(name)
    return model


def reset(model: M, stream: str | int | None = None) -> M:
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
    copies = {
        shared: {key: memory.copied_states() for key, memory in shared.streams.items()} for shared in adaptations(model)
    }
    layers = adapted_layers(model)
    streams: dict[Hashable, Any] = {}
    for name, _, adaptation in layers:
        for key, states in copies[adaptation.shared].items():
            saved = streams.setdefault(key, {"passes": 0, "layers": {}})
            state = states.get(adaptation.name, {})
            saved["passes"] = max(saved["passes"], state.get("passes", 0))
            saved["layers"][name] = state
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
    """Continue from a saved state. Streams that it does not contain begin anew.

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
            values = _copied(saved["layers"].get(name, {}), device)
            if "size" in values:  # older states of `frozen` count the passes of the stream and not of each layer
                values.setdefault("passes", saved["passes"])
            (memory,) = adaptation.shared.streams.open([key])
            memory.states[adaptation.name] = values
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
            _check_channels(name, layer, saved_stream["layers"].get(name, {}))
        _check_channels(name, layer, state["calibration"].get(name, {}))
    for name, values in state["calibration"].items():
        if not set(Calibration._fields) - set(Calibration._field_defaults) <= set(values) <= set(Calibration._fields):
            raise AdaptationError(
                f"the calibration of layer '{name}' was saved by another version of predbn; calibrate the model again "
                "and save its state anew"
            )


def _check_channels(name: str, layer: Any, values: dict[str, Any]) -> None:
    reference = next((t for t in (layer.running_mean, layer.weight) if t is not None), None)
    for key in (
        "mean",
        "var",
        "seen_mean",
        "seen_var",
        "new_mean",
        "new_var",
        "weight",
        "class_means",
        "class_squares",
    ):
        value = values.get(key)
        if reference is not None and value is not None and value.shape[-1:] != reference.shape:
            raise AdaptationError(
                f"layer '{name}' has {reference.numel()} channels, the saved state has {value.shape[-1]}: "
                "it belongs to another model"
            )


def _copied(values: dict[str, Any], device: Any) -> dict[str, Any]:
    return {k: v.detach().clone().to(device) if isinstance(v, Tensor) else v for k, v in values.items()}
