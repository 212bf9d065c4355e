"""Equal shares of the model: start-time fair queueing (Goyal, Vin and Cheng 1996) over clients and their streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from math import inf
from typing import TypeAlias

Stream: TypeAlias = "tuple[str | None, ...]"
"""A client, and one of its streams or None."""
_RECENT = 1.0
"""For how many seconds a client that does not come back has its share of each batch."""


class Turns:
    """How many rows each client, and each stream of a client, has had predicted, and so whose turn it is.

    It is the turn of those who are ahead of the last one by no more than their share of a batch, which is equal for all
    who were active in the last second. Who comes back begins at the level of the last one: turns are not saved up. Who
    is ahead waits until everybody who waits with him may have had as much, and not as long as others come back.
    """

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._rows: dict[Stream, float] = {}
        self._last: dict[str | None, float] = {}
        """The rows of the last client (None), and of the last stream of each client."""
        self._seen: dict[Stream, float] = {}
        """When each stream was active, the latest at the end."""
        self._streams: Counter[str | None] = Counter()
        """How many of them each client has."""
        self._predicted: Counter[str | None] = Counter()
        """The rows of all clients (None), and of each client, since `begin`."""

    def begin(self, active: Iterable[Stream], now: float) -> None:
        """Set the streams that take turns. Others are forgotten, unless they are ahead by more than a batch."""
        owners: set[Stream] = set()
        for stream in active:
            owners |= {stream, stream[:1]}
            self._streams[stream[0]] += self._seen.pop(stream, None) is None
            self._seen[stream] = now
        for stream in [*takewhile(lambda stream: now - self._seen[stream] > _RECENT, self._seen)]:
            del self._seen[stream]
            self._streams -= Counter(stream[:1])
        before, self._last = self._last, {}
        for owner in owners:
            level = _level(owner)
            rows = self._rows.get(owner, inf)
            self._last[level] = min(self._last.get(level, inf), rows)
        for level, rows in self._last.items():
            if rows == inf:  # all of them are new
                self._last[level] = before.get(level, 0.0)
        far = {owner: n for owner, n in self._rows.items() if n > self._last.get(_level(owner), 0) + self._max_batch}
        rows_of = {owner: self._rows.get(owner, 0) for owner in owners} | far
        counts = Counter(map(_level, rows_of))
        shares = {level: self._predicted[level] / count for level, count in counts.items()}
        self._rows = {
            owner: max(n - shares[_level(owner)], self._last.get(_level(owner), 0)) for owner, n in rows_of.items()
        }
        self._predicted.clear()

    def has_turn(self, stream: Stream) -> bool:
        share = self._max_batch / max(1, len(self._streams))
        client, of_client = self._ahead(stream[:1]), self._ahead(stream)
        return client <= share and of_client <= share / max(1, self._streams[stream[0]])

    def count(self, stream: Stream, rows: int) -> None:
        """Count predicted rows."""
        for owner in (stream[:1], stream):
            self._rows[owner] += rows
            self._predicted[_level(owner)] += rows

    def _ahead(self, owner: Stream) -> float:
        """The rows of a client or stream, more than those of the last one."""
        last = self._last.setdefault(_level(owner), 0.0)
        return self._rows.setdefault(owner, last) - last


def _level(owner: Stream) -> str | None:
    """Among whom it takes turns: clients, or streams of a client."""
    return None if len(owner) == 1 else owner[0]
