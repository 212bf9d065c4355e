"""What a strategy remembers of one stream of batches."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

LayerState: TypeAlias = dict[str, "Tensor | int"]


class Stream:
    """The states of all layers for one source of data (a camera, a region, a user).

    A pass through the model is known by its *leader*, the layer that was called first: when it is
    called again, the next pass has begun. So a module that one pass calls several times (a detection
    head shared by all scales) still belongs to one pass.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.states: dict[str, LayerState] = {}
        self.leader: str | None = None
        self.passes = 0

    def state(self, layer: str) -> LayerState:
        return self.states.setdefault(layer, {})

    def count_pass(self, layer: str) -> int:
        if self.leader is None:
            self.leader = layer
        if layer == self.leader:
            self.passes += 1
        return self.passes
