"""The kinds of figure that several experiments have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, box_chart, display_name, metric_info

from .experiment import Charts, FigureSpec
from .runs import Runs
from .series import EVERY, Over, Series, Severities


def metric_figure(
    name: str, title: str, caption: str, draw: Callable[[str], FigureVariant], metrics: Sequence[str]
) -> FigureSpec:
    """A figure with one variant per metric; the metric that the paper shows comes first."""
    charts: Charts = {(metric_info(metric).label,): partial(draw, metric) for metric in metrics}
    return FigureSpec(name, title, caption, ("metric",), charts)


def severity_figure(
    runs: Runs,
    name: str,
    title: str,
    caption: str,
    series: Sequence[Series],
    metrics: Sequence[str],
    looks: Sequence[SeriesStyle] | None = None,
    *,
    severities: Severities = EVERY,
    over: Over | None = None,
) -> FigureSpec:
    """Box plots by severity, one variant per metric (see `severity_boxes`)."""

    def draw(metric: str) -> FigureVariant:
        return severity_boxes(runs, series, metric, looks, severities=severities, over=over)

    return metric_figure(name, title, caption, draw, metrics)


def severity_boxes(
    runs: Runs,
    series: Sequence[Series],
    metric: str,
    looks: Sequence[SeriesStyle] | None = None,
    *,
    severities: Severities = EVERY,
    over: Over | None = None,
) -> FigureVariant:
    """For each severity one box per series, by default over the corruptions (over the draws for a mixture)."""
    parts = [_box_values(each, each.values(runs, metric, severities), over or each.over) for each in series]
    legend = list(looks or looks_of(series))
    chart = box_chart(pd.concat(parts, ignore_index=True), metric, legend, over=over or "corruption")
    return FigureVariant(chart, legend)


def _box_values(series: Series, rows: pd.DataFrame, over: Over) -> pd.DataFrame:
    """The values of a series' boxes; `what` is the name that is shown when the pointer is over a value."""
    means = rows.groupby(["severity", over], as_index=False)["value"].mean()
    what = means[over].map(lambda name: display_name(f"draw {name}" if over == "seed" else str(name)))
    values: pd.DataFrame = means.assign(series=series.label, what=what)
    return values


def looks_of(series: Sequence[Series], pairs: bool = False) -> list[SeriesStyle]:
    """Looks in the order of the series: hollow for train BN, filled for the others.

    With `pairs`, each two consecutive series share a hue, such as the two strategies of one method.
    """
    looks, hues = [], iter((*HUES, *HUES))
    hue = ""
    for number, each in enumerate(series):
        is_train = each.strategy == "train"
        if pairs:
            hue = hue if number % 2 else next(hues)
        else:
            hue = GREY if is_train else next(hues)
        looks.append(SeriesStyle(each.label, hue, is_train))
    return looks
