"""`population`: the statistics of a whole unlabelled data set (AdaBN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from predbn.common import AdaptationError

from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy
from .state import recall


@dataclass(frozen=True)
class Population(Strategy):
    """μ, σ² = the moments of all data given as ``adapt(model, "population", loader=…)``, pooled exactly:
    those that `batch` would use if the whole data set were one batch (AdaBN, Li et al. 2017).

    A layer's input depends on how the layers above it normalise. With `exact` the layers are done one
    after another, each on inputs that the final statistics of those above produce, so the result does
    not depend on how the data is batched; that takes about half as many passes over the data as there
    are layers. ``exact=False`` takes a single pass in which each batch goes through the layers above
    with its own statistics: close for batches of a hundred and more. (A single pass with the *source*
    statistics above would be wrong: every layer would correct what the one above has corrected.)
    """

    name: ClassVar[str] = "population"
    varies: ClassVar[bool] = False
    exact: bool = True

    def statistics(self, observation: Observation) -> Statistics:
        found = recall(observation.state)
        if found is None:
            raise AdaptationError(
                f"layer '{observation.layer}' has no population statistics yet; give adapt(model, 'population', "
                "loader=…) the data, or load saved ones with load_state_dict"
            )
        return found

    def settled(self, state: dict[str, Tensor | int]) -> Statistics | None:
        return recall(state)
