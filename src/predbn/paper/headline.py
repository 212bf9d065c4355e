"""The paper's main result as a table for the README."""

from __future__ import annotations

from predbn.report import meaning

from .experiments.cifar10_methods import SERIES
from .runs import Runs
from .series import METRICS, SHIFTED, TOP

__all__ = ["headline_table"]


def headline_table(runs: Runs) -> str:
    """Mean over all shifted splits, and at severity 5, of every metric for the three methods with both strategies.

    The better of the two strategies of a method is bold.
    """
    labels = {metric: f"{meaning(metric).label}{', %' if meaning(metric).percent else ''}" for metric in METRICS}
    splits = SERIES[0].values(runs, "accuracy", SHIFTED)[["corruption", "severity"]].drop_duplicates()
    heads = [f"{labels[metric]}, {where}" for where in (f"{len(splits)} splits", "severity 5") for metric in METRICS]
    columns = [(metric, severities) for severities in (SHIFTED, TOP) for metric in METRICS]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for pair in zip(SERIES[::2], SERIES[1::2], strict=True):
        cells: list[list[str]] = [[], []]
        for metric, severities in columns:
            known = meaning(metric)
            means = [float(series.values(runs, metric, severities)["value"].mean()) for series in pair]
            for place, own in enumerate(means):
                text = known.number(own)
                is_better = known.sign * own > known.sign * means[1 - place]
                cells[place].append(f"**{text}**" if is_better else text)
        lines += [f"| {series.label} | {' | '.join(row)} |" for series, row in zip(pair, cells, strict=True)]
    return "\n".join(lines)
