"""The streams of an adaptation by name."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from .passes import Stream
from .stream_table import StreamTable

DEFAULT_STREAM = "default"
"""The stream that is used outside of any block of streams."""


class StreamRegistry(Mapping[Hashable, Stream]):
    """The streams in the order of their last use, and the table for those that are predicted together."""

    def __init__(self) -> None:
        self.table = StreamTable()
        self._streams: dict[Hashable, Stream] = {DEFAULT_STREAM: Stream()}
        self._lock = threading.RLock()
        self.default = self._streams[DEFAULT_STREAM]

    def __getitem__(self, name: Hashable) -> Stream:
        return self._streams[name]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._streams))

    def __len__(self) -> int:
        return len(self._streams)

    def __getstate__(self) -> dict[str, Any]:
        """Locks cannot be copied."""
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def open(self, names: Sequence[Hashable]) -> tuple[Stream, ...]:
        """Streams that are going to be used; new ones begin."""
        with self._lock:
            streams = []
            for name in names:
                stream = self._streams.pop(name, None) or Stream()
                self._streams[name] = stream
                streams.append(stream)
            return tuple(streams)

    def remove(self, name: Hashable) -> None:
        with self._lock:
            self._streams.pop(name).clear()
