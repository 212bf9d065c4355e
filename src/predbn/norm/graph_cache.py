"""Which graphs are kept: a few, for the shapes that are predicted most often."""

from __future__ import annotations

from collections import Counter
from typing import Any

_EAGER_CALLS = 2
_CALLS_TO_HALVE = 1024
"""After so many calls, all earlier ones count half: what was predicted long ago is not predicted often."""


class GraphCache(dict[Any, Any]):
    """At most `most` graphs by what they are for; None for one that could not be recorded.

    Recording takes longer than a prediction. If a new graph always took the place of an old one, shapes that come in
    turn would be recorded again and again.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self._uses: Counter[Any] = Counter()
        self._calls = 0

    def count(self, key: Any) -> None:
        """Count a call for which there is a graph, or could be."""
        self._uses[key] += 1
        self._calls += 1
        if self._calls % _CALLS_TO_HALVE == 0:
            self._uses = Counter({key: count // 2 for key, count in self._uses.items() if count > 1})

    def make_room(self, key: Any) -> bool:
        """Count a call without a graph; whether there is to be one now.

        If there is no room, the graph that is used least is dropped for a shape that comes more than twice as often.
        """
        self.count(key)
        if self._uses[key] < _EAGER_CALLS:
            return False
        if len(self) >= self.most:
            least = min(self, key=self._uses.__getitem__)
            if self._uses[key] <= 2 * self._uses[least]:
                return False
            del self[least]
        return True
