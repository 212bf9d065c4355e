"""What the rules of others share: how they become strategies, and how a stream is predicted with them."""

from __future__ import annotations

import copy
from typing import Any, Protocol

from torch import Tensor, nn

import predbn
from predbn.norm import Observation, Strategy


class Predictor(Protocol):
    """Predicts the batches of a stream in their order; `reset` forgets the stream."""

    def __call__(self, images: Tensor) -> Tensor:
        """The logits [N, classes] of images [N, 3, H, W]."""

    def reset(self) -> None: ...


class PeerStrategy(Strategy):
    """A rule of others as a strategy. It is not registered: `predbn.strategies()` lists those of the package only."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super(Strategy, cls).__init_subclass__(**kwargs)


def inputs_of(observation: Observation) -> Tensor:
    """The layer's input [N, C, …] itself, which medians need. An `Observation` offers moments only."""
    return observation._x


def values_of(observation: Observation) -> Tensor:
    """All values of each channel, [C, values], or [G, C, values] for a batch of G groups."""
    x, segments = inputs_of(observation), observation.segments
    group = None if segments is None else segments.group
    if group is None:
        return x.transpose(0, 1).flatten(1)
    return x.unflatten(0, (-1, group)).transpose(1, 2).flatten(2)


class AdaptedNetwork:
    """A copy of a network that is adapted with a strategy, and other options of `predbn.adapt`."""

    def __init__(self, network: nn.Module, strategy: str | Strategy, **options: Any) -> None:
        self.network = predbn.norm.predictor(copy.deepcopy(network), strategy, **options)
        self._keeps_state = predbn.norm.find_strategy(strategy).keeps_state

    def __call__(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits

    def reset(self) -> None:
        predbn.reset(self.network)

    def try_out(self, images: Tensor) -> Tensor:
        """The same logits, but the stream remembers nothing of these images: what an attacker can do beforehand."""
        if not self._keeps_state:
            return self(images)
        state = predbn.state_dict(self.network)
        try:
            return self(images)
        finally:
            predbn.load_state_dict(self.network, state)
