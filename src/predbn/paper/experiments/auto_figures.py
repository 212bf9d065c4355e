"""The figures of `auto`: accuracy by batch size, gains and losses by split, and streams with few classes at a time."""

from __future__ import annotations

from functools import partial

import pandas as pd

from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, XAxis, box_chart, curves, display_name, metric_info

from ..experiment import FigureSpec
from ..plans.auto import AUTO, NETWORKS, SKEWED, UNCALIBRATED, NetworkPlans
from ..runs import Runs
from ..series import EVERY, METRICS, SHIFTED, Series, Severities
from .auto_series import gains_over_better, label_of, mean_over_networks

FIGURE_NAMES = ("sizes", "lost", "streams")

COLOURS = {
    "train": GREY,
    "batch": HUES[0],
    "prior(N=16)": HUES[2],
    AUTO: HUES[1],
    SKEWED: HUES[3],
    UNCALIBRATED: HUES[5],
    "ema": HUES[4],
}
"""The strategies that are drawn, and their colours."""


def _means(
    runs: Runs, plan: str, network: str, metric: str, severities: Severities, by: list[str]
) -> tuple[pd.DataFrame, list[SeriesStyle]]:
    """The means of every measured strategy of a plan, grouped by some columns, and the looks of the strategies."""
    runs.frame(plan)  # raises NotMeasured if the plan has no results
    parts, looks = [], []
    for strategy, colour in COLOURS.items():
        series = Series(label_of(strategy), plan, strategy, network=network)
        if series.is_measured(runs):
            means = series.values(runs, metric, severities).groupby(by, as_index=False, observed=True)["value"].mean()
            parts.append(means.assign(series=series.label))
            looks.append(SeriesStyle(series.label, colour, strategy == "train"))
    return pd.concat(parts, ignore_index=True), looks


def _by_batch_size(runs: Runs, plans: NetworkPlans, metric: str) -> FigureVariant:
    means, looks = _means(runs, plans.compared, plans.network, metric, SHIFTED, ["batch_size", "model"])
    return FigureVariant(curves(means, metric, looks, by="batch_size", title="images in a batch"), looks)


def _gains_by_split(runs: Runs, plans: NetworkPlans) -> FigureVariant:
    values = mean_over_networks(gains_over_better(runs, plans)).rename(columns={"gain": "value"})
    look = SeriesStyle("auto over the better of train and prediction BN", HUES[1], False)
    order = [str(size) for size in sorted(values["batch_size"].unique())]
    splits = zip(values["corruption"], values["severity"], strict=True)
    what = [display_name(f"{corruption} {severity}") for corruption, severity in splits]
    values = values.assign(series=look.series, what=what, batch_size=values["batch_size"].astype(str))
    x_axis = XAxis("batch_size", "images in a batch", order, shared=False)
    return FigureVariant(box_chart(values, "accuracy", [look], x_axis=x_axis), [look])


def _by_order(runs: Runs, plans: NetworkPlans, metric: str) -> FigureVariant:
    means, looks = _means(runs, plans.streams, plans.network, metric, EVERY, ["order", "corruption"])
    means = means.assign(what=means["corruption"].map(lambda name: display_name(str(name))))
    x_axis = XAxis("order", "order of the stream", ["shuffled", "dirichlet:0.1", "by_class"])
    return FigureVariant(box_chart(means, metric, looks, x_axis=x_axis), looks)


def auto_figures(runs: Runs) -> list[FigureSpec]:
    """Every figure with one variant per network, and per metric if there is a choice."""
    choices = [(plans, metric) for plans in NETWORKS for metric in METRICS]
    return [
        FigureSpec(
            "sizes",
            "Accuracy by batch size",
            "Means over the shifted splits; bands reach from the lowest to the highest network. Classes are drawn "
            "independently of each other.",
            ("network", "metric"),
            {
                (plans.label, metric_info(metric).label): partial(_by_batch_size, runs, plans, metric)
                for plans, metric in choices
            },
        ),
        FigureSpec(
            "lost",
            "What auto gains, and where it loses",
            "Accuracy of auto minus that of the better of train and prediction BN, which is known only afterwards; "
            "boxes over clean images and all splits, each a mean over the networks.",
            ("network",),
            {(plans.label,): partial(_gains_by_split, runs, plans) for plans in NETWORKS},
        ),
        FigureSpec(
            "streams",
            "Streams with few classes at a time",
            "Batches of 100 images in which classes are shuffled, come in bursts, or are sorted; boxes over the "
            "corruptions and the clean images.",
            ("network", "metric"),
            {
                (plans.label, metric_info(metric).label): partial(_by_order, runs, plans, metric)
                for plans, metric in choices
            },
        ),
    ]
