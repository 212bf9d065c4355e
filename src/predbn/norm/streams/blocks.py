"""Which streams a prediction belongs to: the open `with stream(…)` and `with streams(…)` blocks.

Blocks are kept in a context variable, so that threads and coroutines have blocks of their own. A generator shares the
context of whoever iterates over it. Therefore a block that it opens holds only while it runs, that is, while its frame
is on the stack, and then comes before the blocks of its callers.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple, Protocol

from predbn.common import AdaptationError

from ..segments import Segments
from ..tracing import is_tracing
from .stream import Pass, Stream, is_backward


class HasDefaultStream(Protocol):
    """What blocks belong to: the layers that were adapted together (`adaptation.py`)."""

    @property
    def default_stream(self) -> Stream: ...

    @property
    def repeated_stream(self) -> Stream: ...


class Selection(NamedTuple):
    """The streams of a block, and which example belongs to which of them; None if all belong to the only one.

    `examples` is how many examples a batch must have; None for any number. `prepared` is the pass to use in place of a
    new one; a CUDA graph has its own.
    """

    streams: tuple[Stream, ...]
    names: tuple[Hashable, ...] = ()
    segments: Segments | None = None
    examples: int | None = None
    prepared: Pass | None = None

    def new_pass(self) -> Pass:
        return self.prepared or Pass(self.streams, is_single=self.segments is None)

    def check_examples(self, examples: int | None) -> None:
        """Raise an error if a model is called with another number of examples.

        None if that is not known, as for a list of pictures: the layers then compare the ids with their own rows.
        """
        if None not in (self.examples, examples) and examples != self.examples:
            raise AdaptationError(
                f"the model was called with {examples or 'no'} examples, but predbn.streams(model, …) got "
                f"{self.examples} ids; give it one for each example"
            )


class _Opening:
    """What the blocks of one `with` statement have in common, so that they are closed in one step."""

    def __init__(self) -> None:
        self.is_closed = False


class Block:
    """A block that was opened by the function with the frame `frame_id`."""

    def __init__(
        self,
        adaptation: HasDefaultStream,
        selection: Selection,
        opening: _Opening,
        frame: FrameType | None,
        *,
        in_generator: bool,
    ) -> None:
        self.adaptation = adaptation
        self.selection = selection
        self.opening = opening
        self.frame_id = id(frame)
        self.in_generator = in_generator
        self.opened_in = _thread_and_task()
        self.can_be_suspended = in_generator or self.opened_in[1] is not None

    @property
    def is_closed(self) -> bool:
        return self.opening.is_closed

    @property
    def is_left_over(self) -> bool:
        """Whether an interrupt has kept it among the open ones. Threads and tasks may have got it with their context,
        and keep it as long as they run."""
        return self.is_closed and self.opened_in == _thread_and_task()


def _thread_and_task() -> tuple[int, asyncio.Task[Any] | None]:
    return threading.get_ident(), None if asyncio._get_running_loop() is None else asyncio.current_task()


_blocks_of_context: ContextVar[tuple[Block, ...]] = ContextVar("_blocks_of_context", default=())
_blocks_of_thread = threading.local()
"""For torch.compile, which cannot read context variables."""
_blocks_of_generators: list[Block] = []
"""Those of all generators: one may be resumed in another context than before."""


def current_selection(adaptation: HasDefaultStream) -> Selection:
    """The streams of the innermost block; outside of all blocks the default stream."""
    if is_tracing():
        return _traced_selection(adaptation)
    blocks = [b for b in _blocks_of_context.get() if b.adaptation is adaptation and not b.is_left_over]
    if _blocks_of_generators:
        frame_ids = {block.frame_id: block for block in blocks if not block.in_generator}
        in_generators = [b for b in list(_blocks_of_generators) if b.adaptation is adaptation and not b.is_closed]
        frame_ids.update({block.frame_id: block for block in in_generators})
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if id(frame) in frame_ids:
                return frame_ids[id(frame)].selection
            frame = frame.f_back
    for block in reversed(blocks):
        if not block.in_generator:
            return block.selection
        if not block.is_closed and block.opened_in != _thread_and_task():
            raise AdaptationError(
                "a stream that was opened in a generator is not known in the threads and tasks that get its context "
                "(asyncio.to_thread, asyncio.create_task); open the stream in the function that predicts"
            )
    return Selection((adaptation.repeated_stream if is_backward() else adaptation.default_stream,))


def _traced_selection(adaptation: HasDefaultStream) -> Selection:
    """The same in a graph that is being compiled. The graph sees the blocks of the thread, whoever has opened them."""
    blocks: tuple[Block, ...] = getattr(_blocks_of_thread, "blocks", ())
    for block in reversed(blocks):
        if block.adaptation is adaptation and not block.is_closed:
            if block.selection.segments is not None:
                raise AdaptationError(
                    "a compiled or exported model does not support rows of several streams; do not compile the "
                    "model, or predict one stream at a time with predbn.stream(model, …)"
                )
            if block.can_be_suspended:
                raise AdaptationError(
                    "a compiled model does not support stream blocks of coroutines and generators; open the stream in "
                    "an ordinary function, for example one that runs in asyncio.to_thread, or do not compile the model"
                )
            return block.selection
    return Selection((adaptation.default_stream,))


@contextmanager
def open_blocks(selections: Sequence[tuple[HasDefaultStream, Selection]]) -> Iterator[None]:
    """Predict in streams for the length of a `with` block."""
    frame, in_generator = _user(sys._getframe())
    opening = _Opening()
    blocks = [Block(adaptation, chosen, opening, frame, in_generator=in_generator) for adaptation, chosen in selections]
    del frame
    try:
        _blocks_of_context.set((*_blocks_of_context.get(), *blocks))
        _blocks_of_thread.blocks = (*getattr(_blocks_of_thread, "blocks", ()), *blocks)
        if in_generator:
            _blocks_of_generators.extend(blocks)
        yield
    finally:
        opening.is_closed = True  # first, in one step that no interrupt divides
        # Not a reset to what was before: a generator may be closed in another context, or after other blocks.
        _blocks_of_context.set(tuple(b for b in _blocks_of_context.get() if b not in blocks and not b.is_left_over))
        remaining = getattr(_blocks_of_thread, "blocks", ())
        _blocks_of_thread.blocks = tuple(block for block in remaining if not block.is_closed)
        if in_generator:
            for block in blocks:
                _blocks_of_generators.remove(block)


def _user(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The function with the `with` statement, from the generator of a context manager that it uses.

    Also whether that function is a generator that somebody iterates over. One that `contextlib.contextmanager` runs is
    a context manager itself, and its user is what counts; a pytest fixture opens its stream for the test.
    """
    while frame is not None and frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        driver = _module(frame.f_back)
        if driver != "contextlib":
            return frame, not driver.startswith("_pytest.")
        frame = frame.f_back
        while frame is not None and _module(frame) == "contextlib":
            frame = frame.f_back
    return frame, False


def _module(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__"))
