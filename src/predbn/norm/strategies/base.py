"""The interface of a strategy, strategies by name, and helpers for those that keep state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from predbn.common import AdaptationError, find_by_name, format_spec, load_plugins

from ..gpu.rules import Rule
from ..kernels import is_tracing
from ..observation import Observation
from ..statistics import Statistics
from ..stream_rows import StreamRows
from ..stream_table import LayerState

if TYPE_CHECKING:
    from ..adapted_layer import Adaptation


@dataclass(frozen=True)
class Strategy(ABC):
    """Where a layer's statistics come from.

    A strategy is a small immutable object. Its fields are its arguments; its class attribute `name` registers it, so
    that `adapt` finds it. What it remembers between batches goes into `observation.state`, as tensors and integers, and
    never into the object itself: one object serves all layers, streams and models.
    """

    name: ClassVar[str]
    keeps_state: ClassVar[bool] = False
    """Whether a batch changes how later batches are normalised. Such a model cannot be exported."""
    can_be_folded: ClassVar[bool] = False
    """Whether there are statistics that do not depend on the batch being predicted: see `fixed_statistics`."""
    works_in_groups: ClassVar[bool] = False
    """Whether `statistics` can handle G batches at once. Moments are then [G, C], and so may be the result."""

    works_in_streams: ClassVar[bool] = False
    """Whether `statistics` can handle the batches of S streams at once. Moments and what it remembers are then [S, C],
    numbers of examples [S, 1], and so may be the result."""

    has_fixed_rule: ClassVar[bool] = False
    """Whether `rule` depends on nothing but the size of the batch, the parameters, the calibration, the composition and
    which tensors there are in the state. The kernels can then be launched again without asking for it."""

    _by_name: ClassVar[dict[str, type[Strategy]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Strategy._by_name[cls.name] = cls
        # What a class inherits from a strategy holds no longer if it changes what that follows from.
        if "statistics" in cls.__dict__ and "rule" not in cls.__dict__:
            cls.rule = Strategy.rule  # type: ignore[method-assign]
        if "rule" in cls.__dict__ and "has_fixed_rule" not in cls.__dict__:
            cls.has_fixed_rule = False

    @abstractmethod
    def statistics(self, observation: Observation) -> Statistics:
        """The statistics to normalise this batch with."""

    def rule(self, observation: Observation) -> Rule | None:
        """The same for the kernels of a GPU; None if they cannot compute it. `save` is called afterwards."""
        return None

    def save(self, observation: Observation, rule: Rule, statistics: Statistics) -> None:  # noqa: B027
        """Remember what the kernels have computed by a rule."""

    @property
    def uses_batch_alone(self) -> bool:
        """Whether `statistics` always returns the batch's own statistics, so that one fused kernel can do it all."""
        return False

    @property
    def uses_calibration(self) -> bool:
        """Whether it looks at what `calibrate` has measured."""
        return False

    @property
    def ignores_calibration(self) -> bool:
        """Whether it works as if the model were not calibrated."""
        return False

    @property
    def robust_by_default(self) -> bool:
        """Whether the influence of each example on the moments is bounded unless `adapt` is told otherwise."""
        return False

    @property
    def follows_classes(self) -> bool:
        """Whether it finds out which classes a batch holds. Its moments are then clipped less (see `robust.py`)."""
        return False

    @property
    def is_identity(self) -> bool:
        """Whether the layer simply does what it did before."""
        return False

    @property
    def pass_count(self) -> int:
        """How often a batch is predicted. A pass only tells the next one which classes the batch holds, as
        `observation.composition`; the last one counts."""
        return 1

    def after_pass(  # noqa: B027
        self, states: Mapping[str, LayerState], output: Any, shared: Adaptation, rows: StreamRows | None = None
    ) -> None:
        """Called with what a model has returned, before the states of the layers that it called are kept.

        With `rows`, the output and the states are those of several streams.
        """

    def description(self, *, is_calibrated: bool) -> str:
        """How `describe` shows it in a layer that has a calibration or none."""
        return str(self)

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
    """A strategy from an object, a name with arguments, or a text such as ``"prior(N=16)"``."""
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
    """A tensor of the state. One that was saved in inference mode cannot be used with gradients: it is copied once."""
    value = state[key]
    assert isinstance(value, Tensor)
    if not is_tracing() and value.is_inference() and not torch.is_inference_mode_enabled():
        value = state[key] = value.clone()
    return value


def check_momentum(strategy: str, momentum: float, meaning: str) -> None:
    if not isinstance(momentum, int | float) or not 0 <= momentum <= 1:
        raise AdaptationError(f"strategy '{strategy}' got momentum={momentum!r}; it is {meaning}, from 0 to 1")
