"""Two sets of results, split by split."""

from __future__ import annotations

import pandas as pd

from predbn.common import EvaluationError
from predbn.metrics import bootstrap_difference

from .results import Results
from .tables import KEYS

__all__ = ["compare"]


def compare(
    first: Results, second: Results, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """How much `first` differs from `second`, by metric and severity, with paired bootstrap intervals.

    Rows are paired by every key in which the two agree on what there is; a key with one value on each side (two
    strategies, say) is what is compared and not paired by. Values are then averaged to one a split, for the splits
    are what an interval generalises over. Columns: metric, severity ("all" over every shifted split), splits, first,
    second, difference, low, high. Where the interval is without 0, the two differ. Clean data is one split, and has
    no interval.
    """
    pair = [key for key in (*KEYS, "metric") if not _is_compared(first, second, key)]
    both = first.frame.merge(second.frame, on=pair, suffixes=("_first", "_second"))
    if both.empty:
        raise EvaluationError(
            f"the two have no row in common when paired by {', '.join(pair)}: choose what to compare so that each side "
            "has one value of what differs."
        )
    splits = both.groupby(["metric", "corruption", "severity"], as_index=False)[["value_first", "value_second"]].mean()
    rows = []
    for metric, values in splits.groupby("metric"):
        shifted = values[values["severity"] > 0]
        parts = [(str(severity), part) for severity, part in values.groupby("severity")]
        for severity, part in [*parts, *([("all", shifted)] if shifted["severity"].nunique() > 1 else [])]:
            a, b = part["value_first"].to_numpy(), part["value_second"].to_numpy()
            row = {"metric": metric, "severity": severity, "splits": len(part), "first": a.mean(), "second": b.mean()}
            low = high = float("nan")
            if len(part) > 1:
                interval = bootstrap_difference(a, b, resamples=resamples, level=level, seed=seed)
                low, high = interval.low, interval.high
            rows.append({**row, "difference": a.mean() - b.mean(), "low": low, "high": high})
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def _is_compared(first: Results, second: Results, key: str) -> bool:
    """Whether each side has one value of a key, and they are not the same one. Splits are always paired."""
    if key in ("corruption", "severity", "metric"):
        return False
    here, there = (set(side.frame[key].unique()) for side in (first, second))
    return len(here) == len(there) == 1 and here != there
