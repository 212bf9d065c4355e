"""Streams: predict in one or in several, forget them, write them to a store."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from torch import Tensor, nn

from predbn.common import AdaptationError

from ..adaptation import Adaptation
from ..layer import adaptations
from ..segments import Segments, StreamSegments
from ..state import Restorer
from .blocks import Selection, current_selection, open_blocks
from .registry import DEFAULT_STREAM, stream_id

M = TypeVar("M", bound=nn.Module)

_MAX_SHOWN = 8
"""How many names of streams a message has."""
_NUMBER_BYTES = 8


@contextmanager
def stream(model: M, name: str | int) -> Iterator[M]:
    """Predict for one of several sources: what strategies such as `ema` remember is kept separately for each name.

    Threads and coroutines have streams of their own: a block in one of them is not seen in another, except by those
    that it starts with its context (`asyncio.create_task`, `asyncio.to_thread`). In a generator a block holds while the
    generator runs, and not while it waits to be resumed; in one decorated with `contextlib.contextmanager` it holds
    until the end of the decorated function. Passes of several threads on the same stream take turns.
    """
    with _opened(model, [stream_id(name)], None):
        yield model


@contextmanager
def streams(model: M, ids: Iterable[Hashable]) -> Iterator[M]:
    """Predict batches whose examples belong to several sources: `ids` are the names of their streams, one per example.

    Every example is predicted as if the batch held its stream alone: with the statistics of the examples of its own
    stream, and with what the strategy remembers of that stream. All streams go through the model together. They are the
    same streams as those of `predbn.stream(model, name)`, which is for batches of a single source.
    """
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise AdaptationError(f"predbn.streams(model, …) got {ids!r}; it takes a list with the stream of each example")
    ids = [stream_id(name) for name in (ids.tolist() if hasattr(ids, "tolist") else ids)]
    for adaptation in adaptations(model):
        _check_streams(adaptation)
    if not ids:
        raise AdaptationError("predbn.streams(model, …) got no ids; it takes a list with the stream of each example")
    order: dict[Hashable, int] = {}
    positions = [order.setdefault(name, len(order)) for name in ids]
    with _opened(model, list(order), StreamSegments(positions, len(order))):
        yield model


@contextmanager
def _opened(model: nn.Module, names: list[Hashable], segments: Segments | None) -> Iterator[None]:
    """Open a block of streams in all adaptations of a model."""
    mixed = segments if len(names) > 1 else None
    with ExitStack() as stack:
        selections = []
        for adaptation in adaptations(model):
            opened = adaptation.streams.open(names, Restorer(model, adaptation))
            stack.callback(adaptation.streams.close, opened)
            examples = None if segments is None else segments.examples
            selections.append((adaptation, Selection(tuple(opened.streams.values()), tuple(names), mixed, examples)))
        stack.enter_context(open_blocks(selections))
        yield


def _check_streams(adaptation: Adaptation) -> None:
    if adaptation.sync:
        raise AdaptationError("predbn.streams and sync=True cannot be combined: the rows are those of this process")
    if adaptation.group is not None:
        raise AdaptationError("predbn.streams and group= cannot be combined: each group is a batch of its own")
    if not adaptation.strategy.works_on_segments:
        raise AdaptationError(
            f"strategy '{adaptation.strategy}' predicts one stream at a time; use predbn.stream(model, name)"
        )


def remove_stream(model: M, name: str | int) -> M:
    """Forget a stream altogether, for example when a camera is switched off. It must not be in use."""
    holders, name = adaptations(model), stream_id(name)
    is_open = any(
        holder.streams.get(name) is not None and holder.streams[name] in current_selection(holder).streams
        for holder in holders
    )
    if name == DEFAULT_STREAM or is_open:
        reason = "is used outside of all stream blocks" if name == DEFAULT_STREAM else "is open here"
        raise AdaptationError(f"stream '{name}' {reason} and cannot be removed; predbn.reset(model, …) clears it")
    if not [holder for holder in holders if holder.streams.forget(name)]:
        raise unknown_stream_error(name, holders[0])
    return model


def reset(model: M, stream: str | int | None = None) -> M:
    """Forget what was learned from one stream, by default from all. Population statistics and calibration stay."""
    stream = None if stream is None else stream_id(stream)
    for adaptation in adaptations(model):
        if adaptation.strategy.keeps_state and not adaptation.streams.reset(stream):
            raise unknown_stream_error(stream, adaptation)
    return model


def save_streams(model: M) -> M:
    """Write the streams that were used since they were written last to the store that was given to `adapt`.

    Streams that leave memory are written anyway. This is for the others: before a program ends, or from time to time,
    so that little is lost if it is killed. Other threads may predict meanwhile.
    """
    shared = [adaptation for adaptation in adaptations(model) if adaptation.strategy.keeps_state]
    for adaptation in shared:
        if adaptation.streams.store is None:
            raise AdaptationError("there is no store for the streams; give adapt(model, …, store='folder') one")
        adaptation.streams.save()
    return model


def stream_bytes(model: nn.Module, stream: str | int = DEFAULT_STREAM) -> int:
    """How much memory the state of a stream takes, in bytes: 0 for one that was not predicted yet."""
    total, stream = 0, stream_id(stream)
    for adaptation in adaptations(model):
        if stream not in adaptation.streams:
            raise unknown_stream_error(stream, adaptation)
        states = adaptation.streams[stream].copied_states()
        values = [value for state in states.values() for value in state.values()]
        total += sum(v.nbytes if isinstance(v, Tensor) else _NUMBER_BYTES for v in values)
    return total


def unknown_stream_error(name: Hashable, adaptation: Adaptation) -> AdaptationError:
    known = list(map(str, adaptation.streams))
    shown = ", ".join(known[:_MAX_SHOWN]) + (", …" if len(known) > _MAX_SHOWN else "")
    return AdaptationError(f"there is no stream '{name}'; there are {shown}")
