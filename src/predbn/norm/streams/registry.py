"""The streams of an adaptation by name, and which of them are in memory.

With `max_streams`, no more streams than these are in memory, unless more are in use at the same time. The others are
in a store: the least recently used go there, and come back when they are used again. A stream that was not used since
it was written is not written again.

Threads open, close, save and reset streams at the same time. The table is never locked while a state is read or
written: a stream enters it before it is read from the store, and leaves it after it was written. So a name is the same
stream for all threads, and wherever an interrupt comes, every stream is in the table or in the store.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import warnings
from collections import deque
from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias
from weakref import WeakSet

import torch

from predbn.common import AdaptationError

from .state import Packed, PlainState, States
from .store import Owner, SavedStream, StreamStore
from .stream import Stream

DEFAULT_STREAM = "default"
"""The stream that is used outside of any block of streams. It is always in memory."""

Restore: TypeAlias = Callable[[Hashable, SavedStream], Packed]
"""Checks that a saved stream fits the model, and moves its tensors to the devices of the layers."""

_WRITERS = 8
"""Streams that are written at the same time: a disk confirms several files nearly as fast as one."""
_clock = itertools.count(1)
"""Orders uses and copies of streams."""


def stream_id(name: Any) -> Any:
    """The name of a stream, or the value of a tensor or NumPy number without dimensions that is given as one."""
    value = name.item() if hasattr(name, "item") and getattr(name, "ndim", None) == 0 else name
    if isinstance(value, bool) or not isinstance(value, str | int | UnnamedStream):
        raise AdaptationError(f"stream ids must be str or int, got {name!r}")
    return value


class UnnamedStream:
    """Takes the place of a name for rows that stand alone: their stream ends with its block.

    It does not count towards the streams in memory, and never goes to the store. Each object is a stream of its own.
    """


class OpenStreams:
    """The streams of a block by name. They stay in memory while this object is open and exists."""

    def __init__(self, streams: dict[Hashable, Stream] | None = None) -> None:
        self.streams: dict[Hashable, Stream] = streams or {}


class StreamRegistry(Mapping[Hashable, Stream]):
    """The streams in memory.

    A strategy that remembers nothing (`keeps_state` is false) needs no streams, and none are kept for it but the
    default one. `owner` is stored with each stream: what its states belong to.
    """

    def __init__(self, *, keeps_state: bool, max_streams: int | None = None, store: StreamStore | None = None) -> None:
        self.store = store
        self.default = Stream()
        self.owner: Owner | None = None
        self._keeps_state, self._max_streams = keeps_state, max_streams
        self._streams: dict[Hashable, Stream] = {DEFAULT_STREAM: self.default}
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._open: WeakSet[OpenStreams] = WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        """Locks and blocks cannot be copied."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_lock", "_open")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __getitem__(self, name: Hashable) -> Stream:
        stream = self._streams[name]
        if not stream.is_loaded:
            raise KeyError(name)
        return stream

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def items(self) -> ItemsView[Hashable, Stream]:
        """Of a copy, since other threads may open and close streams meanwhile."""
        return self._loaded().items()

    def values(self) -> ValuesView[Stream]:
        return self._loaded().values()

    def _loaded(self) -> dict[Hashable, Stream]:
        return {name: stream for name, stream in list(self._streams.items()) if stream.is_loaded}

    def use_store(self, owner: Owner, restore: Restore) -> None:
        """Refuse a store of another owner, and continue with the default stream that is in it."""
        assert self.store is not None
        self.owner = owner
        self.store.claim(owner)
        self.default.is_loaded = False
        self._load(DEFAULT_STREAM, self.default, restore)

    def open(self, names: Iterable[Hashable], restore: Restore) -> OpenStreams:
        """Streams that stay in memory until they are closed. Those that are not there come from the store, or begin."""
        opened = OpenStreams()
        with self._lock:
            self._open.add(opened)
            for name in names:
                if isinstance(name, UnnamedStream) or not self._keeps_state:
                    stream = self._streams.get(name) or Stream()
                else:
                    stream = self._stream(name)
                stream.last_used = next(_clock)
                opened.streams[name] = stream
        try:
            self._evict()
            for name, stream in opened.streams.items():
                self._load(name, stream, restore)
        except BaseException:
            self.close(opened)
            raise
        return opened

    def _stream(self, name: Hashable) -> Stream:
        """The stream in memory, or a new one. If there is a store, that one is not loaded yet."""
        stream = self._streams.get(name)
        if stream is None:
            stream = Stream()
            stream.is_loaded = self.store is None
            self._streams[name] = stream
        return stream

    def _load(self, name: Hashable, stream: Stream, restore: Restore) -> None:
        """Read a stream from the store, if no other thread has done so."""
        if stream.is_loaded:
            return
        assert self.store is not None
        with stream.lock:
            if not stream.is_loaded:
                saved = self.store.get(name)
                if saved is not None:
                    stream.keep(restore(name, saved))
                    stream.written = next(_clock)
                stream.is_loaded = True

    def close(self, opened: OpenStreams) -> None:
        with self._lock:
            for stream in opened.streams.values():
                stream.last_used = next(_clock)
            self._open.discard(opened)
            self._drop({name: stream for name, stream in opened.streams.items() if not stream.is_loaded})
        self._evict()

    def _drop(self, streams: Mapping[Hashable, Stream]) -> None:
        """Remove streams from memory that nobody uses, and that the store has as they are here.

        Afterwards others may read and write the file, so one that is being written just now stays.
        """
        in_use = self._in_use()
        for name, stream in streams.items():
            if id(stream) not in in_use and _is_written(stream) and not stream.writing.locked():
                with stream.writing:
                    if self._streams.get(name) is stream:
                        del self._streams[name]
                    stream.is_removed = True

    def _in_use(self) -> set[int]:
        return {id(self.default), *(id(stream) for opened in self._open for stream in opened.streams.values())}

    def _evict(self) -> None:
        """Send the least recently used streams to the store. One that it does not take stays in memory."""
        if self._max_streams is None:
            return
        with self._lock:
            count = len(self._streams) - 1 - self._max_streams  # the default stream does not count
            if count <= 0:
                return
            in_use = self._in_use()
            unused = [entry for entry in self._streams.items() if id(entry[1]) not in in_use]
            leaving = heapq.nsmallest(count, unused, key=lambda entry: entry[1].last_used)
        try:
            self._write_all(leaving)
        except OSError as error:
            warnings.warn(
                f"a stream stays in memory, because it cannot be stored ({error}); make room on the disk",
                UserWarning,
                stacklevel=4,
            )
        candidates = {}
        for name, stream in leaving:
            with stream.writing:  # after another thread that writes it too
                candidates[name] = stream
        with self._lock:
            self._drop(candidates)

    def save(self) -> None:
        """Write all streams that were used since they were written."""
        self._write_all(self.items())

    def _write_all(self, entries: Iterable[tuple[Hashable, Stream]]) -> None:
        with self._lock:
            in_use = self._in_use()  # the uses of these are not over
        entries = [e for e in entries if not _is_written(e[1]) or (e[1].is_loaded and id(e[1]) in in_use)]
        # After the end of the main thread, in atexit, no thread can be started.
        if len(entries) == 1 or not threading.main_thread().is_alive():
            for name, stream in entries:
                self._write(name, stream, *_copied(stream))
            return
        with ThreadPoolExecutor(_WRITERS) as pool:
            pending: deque[Future[None]] = deque()
            for name, stream in entries:
                if len(pending) == _WRITERS:
                    pending.popleft().result()
                # Copied here, because this thread may be in a pass, and then nobody else can lock its streams.
                pending.append(pool.submit(self._write, name, stream, *_copied(stream)))
            for future in pending:
                future.result()

    def _write(self, name: Hashable, stream: Stream, state: PlainState, copied: int) -> None:
        """Write a copy, unless a newer one was written or the stream was removed or reset meanwhile."""
        assert self.store is not None
        assert self.owner is not None
        with stream.writing:
            is_unused = stream is self.default and not state["vectors"] and not stream.written
            if copied > stream.written and not stream.is_removed and not is_unused:
                self.store.put(name, {"owner": self.owner, "state": state})
                stream.written = copied

    def forget(self, name: Hashable) -> bool:
        """Remove a stream from memory and from the store; whether there was one. Whoever uses it begins anew."""
        with self._lock:  # so that nobody reads it from the store meanwhile
            is_known, stream = name in self, self._stream(name)
            with stream.writing:
                is_known = (self.store is not None and self.store.remove(name)) or is_known
                stream.is_removed = True
            del self._streams[name]
        stream.clear()
        return is_known

    def reset(self, name: Hashable | None) -> bool:
        """Clear a stream, or all of them with None, in memory and in the store; whether there was one."""
        with self._lock:
            is_known = name is None or name in self
            held = OpenStreams({known: stream for known, stream in self._streams.items() if name in (None, known)})
            self._open.add(held)
            if self.store is not None:
                if name is None:
                    self.store.clear()
                else:
                    is_known = self.store.remove(name) or is_known
        for known, stream in held.streams.items():
            with stream.lock:
                stream.clear()
                cleared = next(_clock)
            with stream.writing:
                if self.store is not None:
                    self.store.remove(known)  # it may have been written meanwhile
                stream.written = cleared
        self.close(held)
        return is_known

    def replace(self, states: Mapping[Hashable, States]) -> None:
        """Continue with these streams. Those in memory that are not among them begin anew; a store stays as it is."""
        with self._lock:
            held = OpenStreams({name: self._stream(name) for name in (*self._streams, *states)})
            self._open.add(held)
        for name, stream in held.streams.items():
            with stream.lock:
                stream.clear()
                stream.states, stream.is_loaded = states.get(name, {}), True
        self.close(held)


def _is_written(stream: Stream) -> bool:
    """Whether the store has it as it is in memory. Nothing is known of the uses of the default stream."""
    return not stream.is_loaded or stream.written > stream.last_used


def _copied(stream: Stream) -> tuple[PlainState, int]:
    """What a stream remembers while no pass changes it, and when it was copied."""
    with stream.lock, torch.inference_mode(False):
        packed = stream.packed.clone()
        return packed.layout.plain(packed.vectors), next(_clock)
