"""What the results under corruptions say: which strategy to use, by the same rule as for a real shift.

With five corruptions or more the statement is about corruptions, those that were not measured included: a corruption
is one group, whatever the number of its severities. With fewer there is nothing to generalise over; the statement is
then about other images under the same corruptions, which needs to know which images were predicted correctly (hits).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.data import CLEAN
from predbn.evaluation import Results, unpack_hits

from .rule import BASELINE, Candidate, Recommendation, recommend

MIN_CORRUPTIONS = 5
"""With fewer, an interval over corruptions says next to nothing."""

_SCORES = {"accuracy": 1.0, "brier": -1.0, "auc": 1.0}
"""The metrics that decide and their signs. For clicks the AUC stands for the accuracy, which is that of a constant."""


@dataclass(frozen=True, eq=False)
class UnderCorruptions:
    """The comparison of all strategies for one method, batch size and order: see `under_corruptions`.

    Values are means over the models and seeds. `setting` says which method, batch size and order, if there are others.
    """

    frame: pd.DataFrame
    hits: pd.DataFrame
    card: Mapping[str, Any]
    setting: str = ""
    level: float = 0.95

    @property
    def over(self) -> str | None:
        """What the intervals are over: "corruptions", "images", or None if there are too few of both."""
        shifted = self.frame[self.frame["severity"] > 0]
        if shifted["corruption"].nunique() >= MIN_CORRUPTIONS:
            return "corruptions"
        return "images" if len(shifted) and self._hits_by_strategy(shifted=True) else None

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """What the rule says; None if there are too few corruptions and no hits, or nothing to compare."""
        if BASELINE not in set(self.frame["strategy"]) or self.frame["strategy"].nunique() < 2 or self.over is None:
            return None
        clean = {name: {"accuracy": hits} for name, hits in self._hits_by_strategy(shifted=False).items()}
        groups = None
        if self.over == "images":
            scores = {name: {"accuracy": hits} for name, hits in self._hits_by_strategy(shifted=True).items()}
        else:
            scores, groups = self._scores_by_split()
        if BASELINE not in scores or len(scores) < 2:
            return None
        candidates = [Candidate(name, values, on_reference=clean.get(name, {})) for name, values in scores.items()]
        baseline, *others = sorted(candidates, key=lambda candidate: (candidate.strategy != BASELINE, candidate.rank))
        return recommend(baseline, others, groups=groups, level=self.level)

    def mean(self, strategy: str, metric: str, *, shifted: bool = True) -> float | None:
        """The mean over the shifted splits, or the value on clean data; None if it was not measured."""
        rows = self.frame[(self.frame["strategy"] == strategy) & (self.frame["metric"] == metric)]
        values = rows.loc[(rows["severity"] > 0) == shifted, "value"]
        return float(values.mean()) if len(values) else None

    def _scores_by_split(self) -> tuple[dict[str, dict[str, npt.NDArray[np.float64]]], npt.NDArray[np.int64]]:
        """For each strategy and metric one value per shifted split, and the corruption of each split as a group."""
        shifted = self.frame[self.frame["severity"] > 0]
        splits = ["corruption", "severity"]
        wide = shifted.pivot_table(index=splits, columns=["strategy", "metric"], values="value").dropna(axis=1)
        metrics = ["auc" if "auc" in set(shifted["metric"]) else "accuracy", "brier"]
        scores: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
        for strategy, metric in wide.columns:
            if metric in metrics:
                name = "accuracy" if metric == "auc" else metric
                scores.setdefault(strategy, {})[name] = _SCORES[metric] * wide[strategy, metric].to_numpy()
        groups = np.unique(wide.index.get_level_values("corruption"), return_inverse=True)[1]
        return {name: values for name, values in scores.items() if "accuracy" in values}, groups

    def _hits_by_strategy(self, *, shifted: bool) -> dict[str, npt.NDArray[np.float64]]:
        """The share of correct predictions of each image, over splits, models and seeds; empty without hits."""
        if not len(self.hits) or "images" not in self.card.get("data", {}):
            return {}
        rows = self.hits[(self.hits["severity"] > 0) == shifted]
        images = int(self.card["data"]["images"])
        if any(len(packed) != -(-images // 8) for packed in rows["hits"]):  # streams that visit images several times
            return {}
        return {
            str(strategy): np.mean([unpack_hits(packed, images) for packed in part["hits"]], axis=0, dtype=np.float64)
            for strategy, part in rows.groupby("strategy")
        }


def under_corruptions(results: Results) -> UnderCorruptions:
    """The comparison that the recommendation for a run with corruptions is made from.

    It is that of the plainest method in the largest batches, shuffled if that was measured, and not attacked: different
    settings are never averaged.
    """
    frame, hits = results.frame, results.hits
    named = []
    preferred: dict[str, Callable[[Any], Any]] = {
        "method": lambda name: name == "vanilla",
        "order": lambda name: (not name.startswith("attacked:"), name == "shuffled"),
        "batch_size": int,
    }
    for key, preference in preferred.items():
        values = sorted(set(frame[key]), key=preference)
        frame = frame[frame[key] == values[-1]]
        hits = hits[hits[key] == values[-1]] if len(hits) else hits
        if len(values) > 1:
            named.append(f"{key.replace('_', ' ')} {values[-1]}")
    return UnderCorruptions(frame, hits, results.card, ", ".join(named))


def has_corruptions(results: Results) -> bool:
    """Whether anything was measured that is not clean."""
    return bool((results.frame["corruption"] != CLEAN).any())
