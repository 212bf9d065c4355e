"""The rule that recommends a strategy from paired measurements.

1. Nothing is recommended that the measurements do not support: a strategy must be *clearly* better than `train`, which
   means that the interval of its gain lies above 0. Otherwise the model is left alone.
2. Several strategies are compared with `train`, and in several metrics. The intervals are simultaneous (Bonferroni), so
   that the luckiest of many is not taken for better.
3. Accuracy decides. If no strategy is clearly more accurate, the Brier score does, among those that are not clearly
   less accurate: probabilities that can be relied on are worth having too.
4. A tie goes to the simpler strategy: of all that are clearly better than `train`, those that the best one does not
   clearly beat are tied with it. Of these, one that costs accuracy on data that has not shifted comes last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from predbn.common import EvaluationError
from predbn.metrics import Interval, paired_interval

BASELINE = "train"
METRICS = ("accuracy", "brier")
"""What decides, the first before the second. Scores of both are such that more is better: see `Candidate`."""

_SIMPLEST_FIRST = ("train", "batch", "prior", "frozen", "ema", "population", "auto", "auto_stream", "auto(passes=4)")
"""By what a prediction costs and how much there is to set up: calibration and several passes come last."""

Scores = Mapping[str, npt.NDArray[np.float64]]
Groups = npt.NDArray[np.int64]
Why = Literal["best", "simpler", "harmless", "nothing is better", "all are worse"]


@dataclass(frozen=True)
class Candidate:
    """A strategy, at one batch size if several are compared, and what was measured with it.

    scores        by metric, one value per example or split; more is better, so a Brier score is negated
    on_reference  the same on data that has not shifted; empty if that was not measured
    """

    strategy: str
    scores: Scores
    batch_size: int | None = None
    on_reference: Scores = field(default_factory=dict)

    @property
    def rank(self) -> tuple[int, int]:
        """The place in the order of simplicity; smaller batches are simpler, since requests wait less for them."""
        name = re.split(r"[(\[]", self.strategy)[0]
        several = re.search(r"passes=(?!1\b)", self.strategy)
        known = "auto(passes=4)" if name == "auto" and several else name
        position = _SIMPLEST_FIRST.index(known) if known in _SIMPLEST_FIRST else len(_SIMPLEST_FIRST)
        return position, self.batch_size or 0


@dataclass(frozen=True)
class Comparison:
    """A candidate beside the baseline: the gain in each metric, and on the reference; positive is better."""

    candidate: Candidate
    gains: Mapping[str, Interval]
    on_reference: Mapping[str, Interval]


@dataclass(frozen=True)
class Recommendation:
    """Which strategy to use, and why.

    strategy      the recommended one; "train" means: leave the model alone
    batch_size    what it was measured with; None for `train`, or if there was only one
    metric        in which it is clearly better; None for `train`
    why           "best": it is; "simpler" or "harmless": `runner_up` has a higher estimate, but is not clearly better,
                  and is less simple or costs accuracy on the reference; "nothing is better" and "all are worse"
    chosen        the comparison with `train`; None for `train`
    runner_up     the comparison of the strategy with the highest estimate, if it is not the recommended one
    comparisons   all of them, in the order of the candidates
    level         the simultaneous confidence level of all intervals
    """

    strategy: str
    batch_size: int | None
    metric: str | None
    why: Why
    chosen: Comparison | None
    runner_up: Comparison | None
    comparisons: tuple[Comparison, ...]
    level: float


def recommend(
    baseline: Candidate,
    others: Sequence[Candidate],
    *,
    groups: Groups | None = None,
    reference_groups: Groups | None = None,
    level: float = 0.95,
) -> Recommendation:
    """Apply the rule.

    baseline          the candidate `train`, with which each of the `others` is compared
    groups            which examples or splits are not independent (`predbn.metrics.paired`); by default all are
    reference_groups  the same for the scores on the reference
    level             the probability with which all intervals hold
    """
    metrics = [name for name in METRICS if name in baseline.scores]
    if not others or not metrics:
        raise EvaluationError(f"a recommendation needs {BASELINE} and another strategy, measured on the same data.")
    count = len(others) * len(metrics)

    def gains(candidate: Candidate, over: Candidate, on_reference: bool = False) -> dict[str, Interval]:
        first, second = (side.on_reference if on_reference else side.scores for side in (candidate, over))
        which = reference_groups if on_reference else groups
        return {
            name: paired_interval(first[name], second[name], groups=which, level=level, comparisons=count)
            for name in metrics
            if name in first and name in second
        }

    compared = tuple(Comparison(other, gains(other, baseline), gains(other, baseline, True)) for other in others)
    allowed = [comparison for comparison in compared if not is_below_zero(comparison.gains[metrics[0]])]
    for metric in metrics:
        better = [comparison for comparison in allowed if comparison.gains[metric].low > 0]
        if better:
            break
    else:
        largest = max(compared, key=lambda comparison: comparison.gains[metrics[0]].estimate)
        why: Why = "nothing is better" if allowed else "all are worse"
        return Recommendation(BASELINE, None, None, why, None, largest, compared, level)

    best = max(better, key=lambda comparison: comparison.gains[metric].estimate)
    tied = [other for other in better if gains(best.candidate, other.candidate)[metric].low <= 0] or [best]
    harmless = [comparison for comparison in tied if not any(map(is_below_zero, comparison.on_reference.values()))]
    chosen = min(harmless or tied, key=lambda comparison: comparison.candidate.rank)
    why = "best" if chosen is best else "simpler" if chosen.candidate.rank < best.candidate.rank else "harmless"
    return Recommendation(
        chosen.candidate.strategy,
        chosen.candidate.batch_size,
        metric,
        why,
        chosen,
        None if chosen is best else best,
        compared,
        level,
    )


def is_below_zero(interval: Interval) -> bool:
    """Whether a gain is clearly a loss."""
    return interval.high < 0
