"""What the server knows about a stream, besides the state of the strategy."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from predbn.norm import LayerState

_NUMBERS = "since", "last", "requests", "examples"


@dataclass(eq=False)
class StreamRecord:
    """One stream. Times are in seconds since 1970.

    `seen` and `used` are those of `predbn.norm.Drift` in the stream's last request, one number per layer: how far what
    the layer saw was from the source statistics, and how far what it normalised with. NaN where that is not known.
    """

    id: str
    since: float = field(default_factory=time.time)
    last: float = field(default_factory=time.time)
    requests: int = 0
    examples: int = 0
    seen: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    is_changed: bool = False
    """Whether there is something that has not been saved yet."""

    def count(self, rows: int, seen: list[float], used: list[float]) -> None:
        """Note that a request was predicted."""
        self.last = time.time()
        self.requests += 1
        self.examples += rows
        self.seen, self.used = seen, used
        self.is_changed = True

    @property
    def distance(self) -> float | None:
        """How far the stream is from the source, as a mean over the layers; None if that is not known."""
        return _mean(self.seen)

    @property
    def believed(self) -> float | None:
        """How much of that the strategy has corrected: 0 if it has normalised as in training, about 1 if fully."""
        seen, used = _mean(self.seen), _mean(self.used)
        return used / seen if seen and used is not None else None

    def state(self) -> LayerState:
        """What is kept in its file, in the form in which the state of a layer is."""
        numbers: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        return {**numbers, "seen": torch.tensor(self.seen), "used": torch.tensor(self.used)}

    @classmethod
    def of(cls, id: str, state: LayerState) -> StreamRecord:
        """The record of a stream from its file."""
        values: dict[str, Any] = {name: state[name] for name in _NUMBERS}
        for name in ("seen", "used"):
            values[name] = torch.as_tensor(state[name]).tolist()
        return cls(id, **values)

    def summary(self) -> dict[str, Any]:
        """In a line of the list of streams."""
        return {
            "id": self.id,
            "since": self.since,
            "last": self.last,
            "requests": self.requests,
            "examples": self.examples,
            "distance": self.distance,
            "believed": self.believed,
        }

    def details(self, layers: Sequence[str]) -> dict[str, Any]:
        """The summary with the distances in each layer."""
        rows = zip(layers, self.seen, self.used, strict=bool(self.seen))  # nothing is known before the first request
        return {
            **self.summary(),
            "layers": [{"name": name, "distance": _known(seen), "used": _known(used)} for name, seen, used in rows],
        }


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
