"""The kinds of figure that several experiments have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pandas as pd

from predbn.report import (
    GREY,
    HUES,
    SEVERITY_AXIS,
    FigureVariant,
    SeriesStyle,
    XAxis,
    box_chart,
    display_name,
    metric_info,
)

from .experiment import Charts, FigureSpec
from .runs import Runs
from .series import EVERY, Over, Series, Severities


def metric_figure(
    name: str, title: str, caption: str, draw: Callable[[str, Runs], FigureVariant], metrics: Sequence[str]
) -> FigureSpec:
    """A figure with one variant per metric; the metric that the paper shows comes first."""
    charts: Charts = {(metric_info(metric).label,): partial(draw, metric) for metric in metrics}
    return FigureSpec(name, title, caption, ("metric",), charts)


def severity_figure(
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

    def draw(metric: str, runs: Runs) -> FigureVariant:
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
    parts = [means_by(line, line.values(runs, metric, severities), "severity", over or line.over) for line in series]
    return boxes_of(parts, metric, looks or looks_of(series), over=over or "corruption")


def boxes_of(
    parts: Sequence[pd.DataFrame],
    metric: str,
    looks: Sequence[SeriesStyle],
    *,
    x_axis: XAxis = SEVERITY_AXIS,
    over: Over = "corruption",
) -> FigureVariant:
    """Box plots of the values of several series, as `means_by` gives them."""
    values = pd.concat(parts, ignore_index=True)
    return FigureVariant(box_chart(values, metric, looks, x_axis=x_axis, over=over), list(looks))


def means_by(series: Series, rows: pd.DataFrame, by: str, over: Over) -> pd.DataFrame:
    """The means of a series for each (by, over); `what` is the name that is shown when the pointer is over a value."""
    means = rows.groupby([by, over], as_index=False, observed=True)["value"].mean()
    what = means[over].map(lambda name: display_name(f"draw {name}" if over == "seed" else str(name)))
    values: pd.DataFrame = means.assign(series=series.label, what=what)
    return values


def looks_of(series: Sequence[Series], pairs: bool = False) -> list[SeriesStyle]:
    """Looks in the order of the series: hollow for train BN, filled for the others.

    With `pairs`, each two consecutive series share a hue, such as the two strategies of one method. Otherwise train BN
    is grey.
    """
    are_train = [line.strategy == "train" for line in series]
    if pairs:
        hues = [HUES[number // 2] for number in range(len(series))]
    else:
        hues = [GREY if train else HUES[number - sum(are_train[:number])] for number, train in enumerate(are_train)]
    return [SeriesStyle(line.label, hue, train) for line, hue, train in zip(series, hues, are_train, strict=True)]
