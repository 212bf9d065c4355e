"""What the results of a real shift say: each strategy beside `train`, and which one to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from predbn.common import EvaluationError
from predbn.evaluation import DATA_SPLIT, REFERENCE_SPLIT, Results, Setting
from predbn.metrics import Interval, consecutive_groups, paired_ece_interval

from .rule import BASELINE, Candidate, Recommendation, Scores, recommend

_RUN_KEYS = ["model", "method", "order", "seed"]
"""What results of one comparison have in common."""


@dataclass(frozen=True)
class StrategyOnShift:
    """One strategy at one batch size on the new data.

    metrics     accuracy, brier, ece, nll and confidence; without labels the confidence only
    gains       of accuracy and brier over `train` and, not for the rule, of the ECE; positive is better
    agreement   the share of images that are predicted as `train` predicts them
    on_reference  gains on the reference, if it has labels
    """

    strategy: str
    batch_size: int
    metrics: Mapping[str, float]
    gains: Mapping[str, Interval]
    agreement: float
    on_reference: Mapping[str, Interval]

    @property
    def short(self) -> str:
        return Setting.parse(self.strategy).short


@dataclass(frozen=True, eq=False)
class RealShift:
    """The comparison of all strategies for one model, method, order and seed.

    frame, predictions   the rows of `Results` that belong to it
    card                 the run card
    """

    frame: pd.DataFrame
    predictions: pd.DataFrame
    card: Mapping[str, Any]
    level: float = 0.95

    @property
    def keys(self) -> dict[str, Any]:
        """What distinguishes it from the other comparisons of a run: model, method, order and seed."""
        values: dict[str, Any] = self.frame[_RUN_KEYS].astype(object).iloc[0].to_dict()
        return values

    @property
    def name(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.keys.items())

    @property
    def is_labelled(self) -> bool:
        """Whether the new data has labels, so that accuracy is known."""
        return bool(self.card["data"][DATA_SPLIT.corruption]["labelled"])

    @property
    def pictures(self) -> int:
        return int(self.card["data"][DATA_SPLIT.corruption]["images"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the model's outputs, if they are known."""
        return tuple(self.card["data"].get("class_names", ()))

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """What the rule says; None without labels."""
        if not self.is_labelled:
            return None
        baseline, *others = self._candidates
        if not others:
            return None
        return recommend(
            baseline,
            others,
            groups=self._groups(DATA_SPLIT.corruption),
            reference_groups=self._groups(REFERENCE_SPLIT.corruption),
            level=self.level,
        )

    @cached_property
    def strategies(self) -> list[StrategyOnShift]:
        """Every strategy at every batch size, `train` first and once."""
        comparisons = self.recommendation.comparisons if self.recommendation is not None else ()
        by_candidate = {(c.candidate.strategy, c.candidate.batch_size): c for c in comparisons}
        rows = self._rows(DATA_SPLIT.corruption)
        baseline = rows[0]
        count = 2 * max(1, len(rows) - 1)
        strategies = []
        for row in rows:
            compared = by_candidate.get((row["strategy"], row["batch_size"]))
            gains = dict(compared.gains) if compared else {}
            if compared:
                ece = paired_ece_interval(
                    *((side["confidence"], _hits(side)) for side in (baseline, row)),
                    groups=self._groups(DATA_SPLIT.corruption),
                    bins=int(self.card["bins"]),
                    level=1 - (1 - self.level) / count,
                )
                gains["ece"] = ece  # ECE of train − that of the strategy: positive is better
            agreement = float(np.mean(np.asarray(row["predicted"]) == np.asarray(baseline["predicted"])))
            on_reference = dict(compared.on_reference) if compared else {}
            key = row["strategy"], int(row["batch_size"])
            strategies.append(StrategyOnShift(*key, self._metrics(*key), gains, agreement, on_reference))
        return strategies

    def changes(self, strategy: str, batch_size: int) -> pd.DataFrame:
        """The images that a strategy predicts in another way than `train`: index, train, strategy, confidences."""
        rows = self._rows(DATA_SPLIT.corruption)
        after = next(row for row in rows if (row["strategy"], row["batch_size"]) == (strategy, batch_size))
        before = rows[0]
        columns = {
            "index": after["index"],
            "train": before["predicted"],
            "train_confidence": before["confidence"],
            "strategy": after["predicted"],
            "strategy_confidence": after["confidence"],
        }
        if self.is_labelled:
            columns["label"] = after["label"]
        table = pd.DataFrame(columns)
        changed: pd.DataFrame = table[table["train"] != table["strategy"]].reset_index(drop=True)
        return changed

    def classes_per_batch(self, batch_size: int) -> float | None:
        """How many classes a batch holds on average, as labelled; None without labels."""
        if not self.is_labelled:
            return None
        labels = np.asarray(self._rows(DATA_SPLIT.corruption)[0]["label"])
        batches = [labels[start : start + batch_size] for start in range(0, len(labels), batch_size)]
        return float(np.mean([len(np.unique(batch)) for batch in batches]))

    def labels_and_predictions(self, corruption: str) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64]]:
        """The labels of a split, None without any, and what `train` predicts."""
        baseline = self._rows(corruption)[0]
        labels = np.asarray(baseline["label"])
        return (labels if len(labels) else None), np.asarray(baseline["predicted"])

    def _rows(self, corruption: str) -> list[dict[str, Any]]:
        """The predictions on a split by strategy and batch size, `train` first and once."""
        rows = self.predictions[self.predictions["corruption"] == corruption].to_dict("records")
        trains = [row for row in rows if row["strategy"] == BASELINE]
        if not trains:
            raise EvaluationError(f"nothing can be compared without the strategy {BASELINE}: add it.")
        others = [row for row in rows if row["strategy"] != BASELINE]
        return [trains[0], *sorted(others, key=lambda row: (row["batch_size"], _candidate_of(row).rank))]

    @property
    def _candidates(self) -> list[Candidate]:
        on_reference = {
            (row["strategy"], row["batch_size"]): _scores(row) for row in self._rows(REFERENCE_SPLIT.corruption)
        }
        return [
            _candidate_of(row, on_reference.get((row["strategy"], row["batch_size"]), {}))
            for row in self._rows(DATA_SPLIT.corruption)
        ]

    def _groups(self, corruption: str) -> npt.NDArray[np.int64]:
        rows = self._rows(corruption)
        return consecutive_groups(len(rows[0]["predicted"]), max(int(row["batch_size"]) for row in rows))

    def _metrics(self, strategy: str, batch_size: int) -> dict[str, float]:
        rows = self.frame[
            (self.frame["corruption"] == DATA_SPLIT.corruption)
            & (self.frame["strategy"] == strategy)
            & (self.frame["batch_size"] == batch_size)
        ]
        return dict(zip(rows["metric"], rows["value"], strict=True))


def real_shifts(results: Results) -> list[RealShift]:
    """The comparisons in the results of a run with a reference; none for other runs."""
    if not is_real_shift(results):
        return []
    groups = results.predictions.groupby(_RUN_KEYS, sort=False)
    shifts = []
    for key, predictions in groups:
        is_in_run = (results.frame[_RUN_KEYS] == list(key)).all(axis=1)
        shifts.append(RealShift(results.frame[is_in_run], predictions, results.card))
    return shifts


def is_real_shift(results: Results) -> bool:
    """Whether results are of a run with a reference."""
    return DATA_SPLIT.corruption in results.card.get("data", {})


def _candidate_of(row: Mapping[str, Any], on_reference: Scores | None = None) -> Candidate:
    return Candidate(row["strategy"], _scores(row), int(row["batch_size"]), on_reference or {})


def _scores(row: Mapping[str, Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Accuracy and negated Brier score of each image; empty without labels."""
    if not len(row["label"]):
        return {}
    return {"accuracy": _hits(row), "brier": -np.asarray(row["brier"], dtype=np.float64)}


def _hits(row: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    hits: npt.NDArray[np.float64] = np.equal(row["predicted"], row["label"]).astype(np.float64)
    return hits
