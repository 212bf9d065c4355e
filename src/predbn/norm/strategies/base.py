"""The interface of a strategy, and finding one by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from predbn.common import AdaptationError, find_by_name, written

from ..observation import Observation
from ..statistics import Statistics


@dataclass(frozen=True)
class Strategy(ABC):
    """Where a layer's statistics come from.

    A strategy is a small immutable object: its fields are its arguments, its class attribute `name`
    makes it known to `adapt`. What it remembers between batches it puts into `observation.state`, as
    tensors and integers, and never in itself: one object serves all layers, streams and models.
    """

    name: ClassVar[str]
    keeps_state: ClassVar[bool] = False
    """Whether a batch changes how later ones are normalised. Such a model cannot be exported."""
    varies: ClassVar[bool] = True
    """Whether statistics depend on the batch being predicted. Where they don't, they can be folded."""
    works_in_groups: ClassVar[bool] = False
    """Whether `statistics` may be asked for many batches at once: moments are [G, C] then, as may be the answer."""

    _by_name: ClassVar[dict[str, type[Strategy]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Strategy._by_name[cls.name] = cls

    @abstractmethod
    def statistics(self, observation: Observation) -> Statistics:
        """The statistics to normalise this batch with."""

    @property
    def uses_batch_alone(self) -> bool:
        """Whether `statistics` is just the batch's own, so that one fused kernel may do it all."""
        return False

    @property
    def uses_calibration(self) -> bool:
        """Whether it looks at what `calibrate` has left with a layer."""
        return False

    @property
    def is_identity(self) -> bool:
        """Whether the layer simply does what it did before."""
        return False

    def settled(self, state: dict[str, Tensor | int]) -> Statistics | None:
        """The statistics that now stand for a stream in this state, or None if none do yet."""
        return None

    def __str__(self) -> str:
        return written(self.name, self)


def names() -> list[str]:
    """The strategies known by name."""
    return sorted(Strategy._by_name)


def find(strategy: str | Strategy, **arguments: Any) -> Strategy:
    """A strategy from an object, a name with arguments, or a text such as ``"prior(N=16)"``."""
    return find_by_name(
        "strategy", Strategy, Strategy._by_name, strategy, arguments, example="prior(N=16)", error=AdaptationError
    )
