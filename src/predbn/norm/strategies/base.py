"""The interface of a strategy, strategies by name, and helpers for those that keep state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from predbn.common import AdaptationError, find_by_name, format_spec, load_plugins

from ..observation import Observation
from ..segments import Segments
from ..statistics import Statistics
from ..streams.state import LayerState, States

if TYPE_CHECKING:
    from ..adaptation import Adaptation


@dataclass(frozen=True)
class Strategy(ABC):
    """Where a layer's statistics come from.

    A strategy is a small immutable object. Its fields are its arguments; its class attribute `name` registers it, so
    that `adapt` finds it. What it remembers between batches goes into `observation.state`, as tensors and integers, and
    never into the object itself: one object serves all layers, streams and models. New tensors are assigned to the
    state and never changed in place, because a pass that fails must leave the old ones. Streams whose states have
    different keys, as when one begins, are handled one after the other: ``"mean" in observation.state`` needs no case
    for several streams.
    """

    name: ClassVar[str]
    keeps_state: ClassVar[bool] = False
    """Whether a batch changes how later batches are normalised. Such a model cannot be exported."""
    works_on_segments: ClassVar[bool] = False
    """Whether `statistics` can handle a batch of S segments (groups, streams) at once. Moments and what it remembers
    are then [S, C], numbers of examples [S, 1], and so may be the result."""
    can_be_folded: ClassVar[bool] = False
    """Whether there are statistics that do not depend on the batch being predicted: see `fixed_statistics`."""

    bounds: ClassVar[float | None] = None
    """How far the influence of each example on the moments is bounded by default (c of `robust.py`); None: not."""

    _by_name: ClassVar[dict[str, type[Strategy]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Strategy._by_name[cls.name] = cls

    @abstractmethod
    def statistics(self, observation: Observation) -> Statistics:
        """The statistics to normalise this batch with."""

    @property
    def calibration(self) -> Literal["optional", "needed", "ignored"]:
        """What `calibrate` measures is "optional" (for bounds), "needed" for good results, or "ignored"."""
        return "optional"

    @property
    def pass_count(self) -> int:
        """How often a batch is predicted, if not by the layers alone but by `predictor`."""
        return 1

    def after_pass(  # noqa: B027
        self, states: States, output: Any, shared: Adaptation, segments: Segments | None
    ) -> None:
        """Called with what a model has returned, before the states of the layers that it called are kept.

        With segments, the output and the states are those of several streams.
        """

    def fixed_statistics(self, state: LayerState) -> Statistics | None:
        """The statistics to fold for a stream in this state: those saved last, None if there are none yet."""
        return load_statistics(state)

    def __str__(self) -> str:
        return format_spec(self.name, self)


def strategies() -> list[str]:
    """The names of all strategies."""
    load_plugins()
    return sorted(Strategy._by_name)


def find_strategy(strategy: str | Strategy, **arguments: Any) -> Strategy:
    """A strategy from an object, a name with arguments, or a string such as ``"prior(N=16)"``."""
    return find_by_name(
        "strategy", Strategy, Strategy._by_name, strategy, arguments, example="prior(N=16)", error=AdaptationError
    )


def save_statistics(state: LayerState, statistics: Statistics) -> Statistics:
    """Save statistics for later batches, detached from this batch's graph; return them as they are."""
    state["mean"], state["var"] = statistics.mean.detach(), statistics.var.detach()
    return statistics


def load_statistics(state: LayerState) -> Statistics | None:
    """The statistics saved last; None if there are none."""
    return Statistics(load_tensor(state, "mean"), load_tensor(state, "var")) if "mean" in state else None


def load_tensor(state: LayerState, key: str) -> Tensor:
    value = state[key]
    assert isinstance(value, Tensor)
    return value


def check_momentum(strategy: str, momentum: float, meaning: str) -> None:
    if not isinstance(momentum, int | float) or not 0 <= momentum <= 1:
        raise AdaptationError(f"strategy '{strategy}' got momentum={momentum!r}; it is {meaning}, from 0 to 1")
