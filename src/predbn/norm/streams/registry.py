"""The streams of an adaptation by name, and which of them are in memory.

With `max_streams`, no more streams than these are in memory, unless more are in use at the same time. The others are
in a store: the least recently used go there, and come back when they are used again. A stream that was not used since
it was written is not written again.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, TypeAlias

from .state import States
from .store import SavedStream, StreamStore
from .stream import Stream

DEFAULT_STREAM = "default"
"""The stream that is used outside of any block of streams. It is always in memory."""

Restore: TypeAlias = Callable[[Hashable, SavedStream], States]
"""Checks that a saved stream fits the model, and moves its tensors to the devices of the layers."""


class UnnamedStream:
    """Takes the place of a name for rows that stand alone: their stream ends with its block.

    It does not count towards the streams in memory, and never goes to the store. Each object is a stream of its own.
    """


class StreamRegistry(Mapping[Hashable, Stream]):
    """The streams in memory in the order of their last use.

    A strategy that remembers nothing (`keeps_state` is false) needs no streams, and none are kept for it but the
    default one. `strategy` is its description, which is stored with each stream.
    """

    def __init__(
        self, strategy: str, *, keeps_state: bool, max_streams: int | None = None, store: StreamStore | None = None
    ) -> None:
        self.store = store
        self.default = Stream()
        self.strategy, self._keeps_state = strategy, keeps_state
        self._max_streams = max_streams
        self._streams: dict[Hashable, Stream] = {DEFAULT_STREAM: self.default}
        self._create_locks()

    def _create_locks(self) -> None:
        self._lock, self._store_lock = threading.RLock(), threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Locks cannot be copied."""
        return {key: value for key, value in self.__dict__.items() if not key.endswith("_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._create_locks()

    def __getitem__(self, name: Hashable) -> Stream:
        return self._streams[name]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._streams))

    def __len__(self) -> int:
        return len(self._streams)

    def items(self) -> ItemsView[Hashable, Stream]:
        """Of a copy, since other threads may open and close streams meanwhile."""
        return dict(self._streams).items()

    def values(self) -> ValuesView[Stream]:
        return dict(self._streams).values()

    def begin(self, name: Hashable) -> Stream:
        """The stream in memory, or a new one."""
        with self._lock:
            return self._streams.setdefault(name, Stream())

    def open(self, names: Iterable[Hashable], restore: Restore) -> tuple[Stream, ...]:
        """Streams that stay in memory until they are closed. Those that are not there come from the store, or begin."""
        if not self._keeps_state:
            return tuple(self._streams.get(name) or Stream() for name in names)
        opened: list[Stream] = []
        with self._lock:
            try:
                for name in names:
                    stream = self._streams.pop(name, None) or self._restored(name, restore)
                    if isinstance(name, UnnamedStream):
                        stream.is_removed = True  # it is cleared when it is closed
                    else:
                        self._streams[name] = stream  # at the end: it was used last
                    stream.users += 1
                    opened.append(stream)
            except BaseException:
                self.close(opened)
                raise
        return tuple(opened)

    def _restored(self, name: Hashable, restore: Restore) -> Stream:
        with self._store_lock:
            saved = None if self.store is None or isinstance(name, UnnamedStream) else self.store.get(name)
        if saved is None:
            return Stream()
        stream = Stream(restore(name, saved))
        stream.is_saved = True
        return stream

    def close(self, streams: Iterable[Stream]) -> None:
        if not self._keeps_state:
            return
        with self._lock:
            for stream in streams:
                stream.users -= 1
                stream.is_saved = False
                if stream.is_removed and not stream.users:
                    stream.clear()
            if self._max_streams is not None:
                self._evict(len(self._streams) - 1 - self._max_streams)  # the default stream does not count

    def _evict(self, count: int) -> None:
        """Send the least recently used streams to the store. One that it does not take stays in memory."""
        unused = [name for name, stream in self._streams.items() if not stream.users and stream is not self.default]
        for name in unused[: max(0, count)]:
            try:
                self._save(name)
            except OSError as error:
                warnings.warn(
                    f"stream '{name}' stays in memory, because it cannot be stored ({error}); make room on the disk",
                    UserWarning,
                    stacklevel=2,
                )
                return
            self._streams.pop(name).clear()

    def save(self) -> None:
        """Write all streams that were used since they were written."""
        for name in self:
            self._save(name)

    def _save(self, name: Hashable) -> None:
        with self._store_lock:
            stream = self._streams.get(name)
            if stream is None or stream is self.default or stream.is_saved or self.store is None:
                return
            stream.is_saved = stream.users == 0  # before it is copied: another thread may use it meanwhile
            try:
                self.store.put(name, {"strategy": self.strategy, "layers": stream.copied_states()})
            except BaseException:
                stream.is_saved = False
                raise

    def forget(self, name: Hashable) -> bool:
        """Remove a stream from memory and from the store; whether there was one. Whoever uses it begins anew."""
        with self._lock, self._store_lock:
            stream = self._streams.pop(name, None)
            is_stored = self.store is not None and self.store.remove(name)
        if stream is not None:
            stream.is_removed = True
            stream.clear()
        return is_stored or stream is not None

    def reset(self, name: Hashable | None) -> bool:
        """Clear a stream, or all of them with None, in memory and in the store; whether there was one."""
        with self._lock, self._store_lock:
            is_stored = False
            if self.store is not None:
                for stored in list(self.store.names()) if name is None else [name]:
                    is_stored = self.store.remove(stored) or is_stored
            cleared = [stream for known, stream in self._streams.items() if name in (None, known)]
        for stream in cleared:
            stream.is_saved = False
            stream.clear()
        return is_stored or bool(cleared)
