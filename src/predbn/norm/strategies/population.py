"""`population`: the statistics of a whole unlabelled data set (AdaBN)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from predbn.common import AdaptationError

from ..observation import Observation
from ..statistics import Statistics
from .base import Strategy, load_statistics


@dataclass(frozen=True)
class Population(Strategy):
    """μ, σ² = the moments of all data given as ``adapt(model, "population", loader=…)``, pooled exactly.

    They are what `batch` would use if the whole data set were one batch (AdaBN, Li et al. 2017).

    A layer's input depends on how the layers before it normalise. With `exact` the layers are measured one after
    another, each on inputs that result from the final statistics of those before it. The result then does not depend on
    how the data is batched, but it takes about half as many passes over the data as there are layers. ``exact=False``
    takes a single pass, in which each batch goes through the earlier layers with its own statistics: close for batches
    of a hundred or more. (A single pass with the *source* statistics in the earlier layers would be wrong: every layer
    would correct what the one before it has already corrected.)
    """

    name: ClassVar[str] = "population"
    works_on_segments: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    exact: bool = True

    def statistics(self, observation: Observation) -> Statistics:
        statistics = load_statistics(observation.state)
        if statistics is None:
            raise AdaptationError(
                f"layer '{observation.layer}' has no population statistics yet; give adapt(model, 'population', "
                "loader=…) the data, or load saved ones with load_state_dict"
            )
        return statistics
