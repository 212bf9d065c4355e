"""What a strategy gains over the baseline on every split, signed so that positive is better."""

from __future__ import annotations

import pandas as pd

from predbn.common import ReportError

from .frames import BASELINE, KEYS, main_method, of_metric
from .meanings import meaning

__all__ = ["gains"]


def gains(
    frame: pd.DataFrame,
    metric: str,
    *,
    strategy: str = "batch",
    baseline: str = BASELINE,
    method: str | None = None,
) -> pd.DataFrame:
    """The columns corruption, severity, before, after, gain: one row a split.

    gain = s · (after − before), with s = −1 where lower is better. Before and after are means over the models,
    seeds, orders and batch sizes that have both strategies, so that like is compared with like.
    """
    known = meaning(metric)
    if known.better is None:
        raise ReportError(
            f"It is not known which way {metric!r} is better, so nothing can be called a gain: choose another metric."
        )
    rows = of_metric(frame, metric)
    method = main_method(rows) if method is None else method
    rows = rows[rows["method"] == method]
    pair = [key for key in KEYS if key != "strategy"]
    sides = [rows.loc[rows["strategy"] == name, [*pair, "value"]] for name in (baseline, strategy)]
    both = sides[0].merge(sides[1], on=pair, suffixes=("_before", "_after"))
    if both.empty:
        there = ", ".join(sorted(rows["strategy"].unique())) or "none at all"
        raise ReportError(
            f"The results have no split with both strategies {baseline!r} and {strategy!r} "
            f"for method {method!r}: they have {there}."
        )
    both = both.rename(columns={"value_before": "before", "value_after": "after"})
    splits: pd.DataFrame = both.groupby(["corruption", "severity"], as_index=False, sort=False)[
        ["before", "after"]
    ].mean()
    splits["gain"] = known.sign * (splits["after"] - splits["before"])
    return splits
