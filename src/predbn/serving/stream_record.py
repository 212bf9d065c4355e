"""What the server knows about a stream, besides the state of the strategy."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(eq=False)
class StreamRecord:
    """One stream. Times are in seconds since 1970.

    `distances` says for each layer how far the stream's last batch was from the source statistics, in source standard
    deviations, as `predbn.describe` does; None where nothing is known.
    """

    id: str
    since: float = field(default_factory=time.time)
    last: float = field(default_factory=time.time)
    requests: int = 0
    examples: int = 0
    distances: dict[str, float | None] = field(default_factory=dict)

    is_changed: bool = False
    """Whether there is something that has not been saved yet."""
    is_forgotten: bool = False

    def count(self, rows: int) -> None:
        """Note that a request was predicted."""
        self.last = time.time()
        self.requests += 1
        self.examples += rows
        self.is_changed = True

    @property
    def distance(self) -> float | None:
        """The mean over the layers."""
        known = [distance for distance in self.distances.values() if distance is not None]
        return sum(known) / len(known) if known else None

    def saved(self) -> dict[str, Any]:
        """What is kept in its file."""
        values = asdict(self)
        del values["is_changed"], values["is_forgotten"]
        return values

    def summary(self) -> dict[str, Any]:
        """In a line of the list of streams."""
        return {
            "id": self.id,
            "since": self.since,
            "last": self.last,
            "requests": self.requests,
            "examples": self.examples,
            "distance": self.distance,
        }

    def details(self) -> dict[str, Any]:
        """The summary with the distance in each layer."""
        return {**self.summary(), "layers": self.distances}
