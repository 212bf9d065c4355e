"""The record of a stream: what the server keeps about it besides the state of the strategy."""

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

    `seen` and `used` are those of `predbn.norm.Drift` in the last request, one number per layer: the distance of the
    batch, and of what the layer normalised with, from the source statistics. NaN where unknown.
    """

    id: str
    since: float = field(default_factory=time.time)
    last: float = field(default_factory=time.time)
    requests: int = 0
    examples: int = 0
    seen: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def count(self, rows: int, seen: list[float], used: list[float]) -> None:
        """Count a predicted request."""
        self.last = time.time()
        self.requests += 1
        self.examples += rows
        self.seen, self.used = seen, used

    @property
    def distance(self) -> float | None:
        """The distance of the stream from the source, as a mean over the layers; None if unknown."""
        return _mean(self.seen)

    @property
    def believed(self) -> float | None:
        """The share of that distance that the strategy corrects: 0 for `train`, about 1 for `batch`."""
        seen, used = _mean(self.seen), _mean(self.used)
        return used / seen if seen and used is not None else None

    def state(self) -> LayerState:
        """The content of its file, in the form of the state of a layer."""
        numbers: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        return {**numbers, "seen": torch.tensor(self.seen), "used": torch.tensor(self.used)}

    @classmethod
    def of(cls, id: str, state: LayerState) -> StreamRecord:
        """The record of a stream from its file."""
        fields: dict[str, Any] = {name: state[name] for name in _NUMBERS}
        fields |= {name: torch.as_tensor(state[name]).tolist() for name in ("seen", "used")}
        return cls(id, **fields)

    def summary(self) -> dict[str, Any]:
        """Its entry in the list of streams."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {"id": self.id, **numbers, "distance": self.distance, "believed": self.believed}

    def details(self, layers: Sequence[str]) -> dict[str, Any]:
        """The summary with the distances in each layer."""
        rows = zip(layers, self.seen, self.used, strict=bool(self.seen))  # they are empty before the first request
        return {
            **self.summary(),
            "layers": [{"name": name, "distance": _mean([seen]), "used": _mean([used])} for name, seen, used in rows],
        }


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None
