"""How the experiments' figures are drawn: what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from predbn.report import GREY, HUES, Look, Panel, Variant, box_chart, meaning
from predbn.report import readable_labels as readable

from .runs import Runs
from .series import EVERY, METRICS, Over, Series, Severities

__all__ = ["by_metric", "looks_of", "severity_boxes"]


def by_metric(
    name: str,
    title: str,
    caption: str,
    draw: Callable[[str], Variant],
    metrics: Sequence[str] = METRICS,
) -> Panel:
    """A figure with one variant a metric, the one that the paper shows first being first."""
    panel = Panel(name, title, caption, ("metric",))
    panel.variants.update({(meaning(metric).label,): draw(metric) for metric in metrics})
    return panel


def looks_of(series: Sequence[Series], pairs: bool = False) -> list[Look]:
    """Looks in the order of the series: train BN hollow, the others filled.

    With `pairs` a hue is shared by the two strategies of one kind, which follow each other.
    """
    looks, hues = [], iter((*HUES, *HUES))
    hue = ""
    for place, each in enumerate(series):
        hollow = each.strategy == "train"
        if pairs:
            hue = hue if place % 2 else next(hues)
        else:
            hue = GREY if hollow else next(hues)
        looks.append(Look(each.label, hue, hollow))
    return looks


def severity_boxes(
    runs: Runs,
    series: Sequence[Series],
    metric: str,
    looks: Sequence[Look] | None = None,
    *,
    severities: Severities = EVERY,
    over: Over | None = None,
) -> Variant:
    """For each severity, a box a series: over the corruptions (draws, for a mixture of them) unless `over` is given."""
    parts = [_spread(each, each.values(runs, metric, severities), over or each.over) for each in series]
    drawn = list(looks or looks_of(series))
    chart = box_chart(pd.concat(parts, ignore_index=True), metric, drawn, over=over or "corruption")
    return Variant(chart, drawn)


def _spread(series: Series, rows: pd.DataFrame, over: Over) -> pd.DataFrame:
    """The values that a series' boxes are made of, each with the name that pointing at it shows."""
    means = rows.groupby(["severity", over], as_index=False)["value"].mean()
    what = means[over].map(lambda name: readable(f"draw {name}" if over == "seed" else str(name)))
    values: pd.DataFrame = means.assign(series=series.label, what=what)
    return values
