"""The figures of `auto`: how accuracy grows with the batch, what is lost where, and what skewed streams do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from predbn.common import NotMeasured
from predbn.report import GREY, HUES, Look, Panel, Places, Variant, box_chart, curves, meaning
from predbn.report import readable_labels as readable

from ..auto_plans import ARMS, AUTO, SKEWED, UNCALIBRATED, Arm
from ..runs import Runs
from ..series import EVERY, METRICS, SHIFTED, Series
from .auto_series import against_the_better, by_split, named

__all__ = ["PANELS", "draw"]

PANELS = ("sizes", "lost", "streams")

SHOWN = {
    "train": GREY,
    "batch": HUES[0],
    "prior(N=16)": HUES[2],
    AUTO: HUES[1],
    SKEWED: HUES[3],
    UNCALIBRATED: HUES[5],
    "ema": HUES[4],
}
"""The strategies that are drawn, and their colours."""


def _look(strategy: str) -> Look:
    return Look(named(strategy), SHOWN[strategy], strategy == "train")


def _there(runs: Runs, plan: str) -> list[str]:
    frame = runs.frame(plan)
    return [each for each in SHOWN if Series("", plan, each, network=str(frame["network"].iloc[0])).is_there(runs)]


def _by_size(runs: Runs, arm: Arm, metric: str) -> Variant:
    strategies = _there(runs, arm.compared)
    parts = []
    for strategy in strategies:
        rows = Series("", arm.compared, strategy, network=arm.network).values(runs, metric, SHIFTED)
        means = rows.groupby(["batch_size", "model"], as_index=False, observed=True)["value"].mean()
        parts.append(means.assign(series=_look(strategy).series))
    looks = [_look(strategy) for strategy in strategies]
    chart = curves(pd.concat(parts, ignore_index=True), metric, looks, by="batch_size", title="images in a batch")
    return Variant(chart, looks)


def _lost(runs: Runs, arm: Arm) -> Variant:
    values = by_split(against_the_better(runs, arm)).rename(columns={"gain": "value"})
    look = Look("auto over the better of train and prediction BN", HUES[1], False)
    order = [str(size) for size in sorted(values["batch_size"].unique())]
    named = [readable(f"{kind} {level}") for kind, level in zip(values["corruption"], values["severity"], strict=True)]
    values = values.assign(series=look.series, what=named, batch_size=values["batch_size"].astype(str))
    places = Places("batch_size", "images in a batch", order, shared=False)
    return Variant(box_chart(values, "accuracy", [look], places=places), [look])


def _by_order(runs: Runs, arm: Arm, metric: str) -> Variant:
    strategies = _there(runs, arm.streams)
    parts = []
    for strategy in strategies:
        rows = Series("", arm.streams, strategy, network=arm.network).values(runs, metric, EVERY)
        means = rows.groupby(["order", "corruption"], as_index=False, observed=True)["value"].mean()
        named = means["corruption"].map(lambda name: readable(str(name)))
        parts.append(means.assign(series=_look(strategy).series, what=named))
    looks = [_look(strategy) for strategy in strategies]
    places = Places("order", "order of the stream", ["shuffled", "dirichlet:0.1", "by_class"])
    return Variant(box_chart(pd.concat(parts, ignore_index=True), metric, looks, places=places), looks)


def draw(runs: Runs) -> list[Panel]:
    """Every figure with the networks that were measured, as a choice."""
    sizes = Panel(
        "sizes",
        "Accuracy by the size of the batch",
        "Means over the shifted splits; bands reach from the lowest to the highest network. Classes come as they are "
        "drawn, independently of each other.",
        ("network", "metric"),
    )
    lost = Panel(
        "lost",
        "What auto gains, and where it loses",
        "Accuracy of auto less that of the better of train and prediction BN, which is known only afterwards; boxes "
        "over clean images and all splits, each a mean over the networks.",
        ("network",),
    )
    streams = Panel(
        "streams",
        "Streams of few classes at a time",
        "Batches of 100 images in which classes are mixed, come in bursts, or are sorted; boxes over the corruptions "
        "and the clean images.",
        ("network", "metric"),
    )
    for arm in ARMS:
        for metric in METRICS:
            _add(sizes, (arm.single, meaning(metric).label), partial(_by_size, runs, arm, metric))
            _add(streams, (arm.single, meaning(metric).label), partial(_by_order, runs, arm, metric))
        _add(lost, (arm.single,), partial(_lost, runs, arm))
    drawn = [panel for panel in (sizes, lost, streams) if panel.variants]
    if not drawn:
        raise NotMeasured("auto has no results")
    return drawn


def _add(panel: Panel, choice: tuple[str, ...], make: Callable[[], Variant]) -> None:
    """A variant, where it was measured."""
    try:
        panel.variants[choice] = make()
    except NotMeasured:
        return
