"""The figures of `auto`: accuracy by batch size, gains and losses by split, and streams with few classes at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import pandas as pd

from predbn.report import GREY, HUES, FigureVariant, SeriesStyle, XAxis, curves, display_name, metric_info

from ..drawing import boxes_of, means_by
from ..experiment import Charts, FigureSpec
from ..plans.auto import AUTO, NETWORKS, ONE_PASS, SKEWED, UNCALIBRATED, NetworkPlans
from ..runs import Runs
from ..series import EVERY, METRICS, SHIFTED, Over, Series, Severities
from .auto_series import gains_over_better, label_of, mean_over_networks

FIGURE_NAMES = ("sizes", "lost", "streams")

COLOURS = {
    "train": GREY,
    "batch": HUES[0],
    "prior(N=16)": HUES[2],
    AUTO: HUES[1],
    ONE_PASS: HUES[3],
    SKEWED: HUES[5],
    UNCALIBRATED: HUES[4],
    "ema": HUES[4],
}
"""The strategies that are drawn, and their colours. The last two are not in the same figure."""


def _means(
    runs: Runs, plan: str, network: str, metric: str, severities: Severities, by: str, over: Over
) -> tuple[list[pd.DataFrame], list[SeriesStyle]]:
    """The means (see `means_by`) and the looks of every measured strategy of a plan."""
    runs.frame(plan)  # raises NotMeasured if the plan has no results
    parts, looks = [], []
    for strategy, colour in COLOURS.items():
        series = Series(label_of(strategy), plan, strategy, network=network)
        if series.is_measured(runs):
            parts.append(means_by(series, series.values(runs, metric, severities), by, over))
            looks.append(SeriesStyle(series.label, colour, strategy == "train"))
    return parts, looks


def _by_batch_size(runs: Runs, plans: NetworkPlans, metric: str) -> FigureVariant:
    means, looks = _means(runs, plans.compared, plans.network, metric, SHIFTED, "batch_size", "model")
    values = pd.concat(means, ignore_index=True)
    return FigureVariant(curves(values, metric, looks, by="batch_size", title="images in a batch"), looks)


def _gains_by_split(runs: Runs, plans: NetworkPlans) -> FigureVariant:
    values = mean_over_networks(gains_over_better(runs, plans)).rename(columns={"gain": "value"})
    look = SeriesStyle("auto in one pass over the better of train and prediction BN", HUES[1], False)
    what = (values["corruption"].astype(str) + " " + values["severity"].astype(str)).map(display_name)
    order = [str(size) for size in sorted(values["batch_size"].unique())]
    values = values.assign(series=look.series, what=what, batch_size=values["batch_size"].astype(str))
    x_axis = XAxis("batch_size", "images in a batch", order, shared=False)
    return boxes_of([values], "accuracy", [look], x_axis=x_axis)


def _by_order(runs: Runs, plans: NetworkPlans, metric: str) -> FigureVariant:
    means, looks = _means(runs, plans.streams, plans.network, metric, EVERY, "order", "corruption")
    x_axis = XAxis("order", "order of the stream", ["shuffled", "dirichlet:0.1", "by_class"])
    return boxes_of(means, metric, looks, x_axis=x_axis)


def auto_figures(runs: Runs) -> list[FigureSpec]:
    """Every figure with one variant per network, and per metric if there is a choice."""

    def by_metric(draw: Callable[[Runs, NetworkPlans, str], FigureVariant]) -> Charts:
        return {
            (plans.label, metric_info(metric).label): partial(draw, runs, plans, metric)
            for plans, metric in product(NETWORKS, METRICS)
        }

    return [
        FigureSpec(
            "sizes",
            "Accuracy by batch size",
            "Means over the shifted splits; bands reach from the lowest to the highest network. Classes are drawn "
            "independently of each other.",
            ("network", "metric"),
            by_metric(_by_batch_size),
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
            by_metric(_by_order),
        ),
    ]
