"""The border study: what the border of the training crops changes, with networks that differ in nothing else.

Each set of networks (`predbn train cifar10 --padding … --border …`) has results of its own in `border-<name>` beside
the plans of the zoo's networks, made by `predbn paper run --plan methods --networks …`. The claims on CIFAR-10 are
checked on each set, as far as its plans were run. Sets without results are left out.
"""

from __future__ import annotations

import pandas as pd

from predbn.common import NotMeasured
from predbn.metrics import t_mean
from predbn.report import HUES, FigureVariant, SeriesStyle, box_chart

from .experiment import FigureSpec
from .measurements import LEVEL, welch
from .plans.cifar10 import METHODS
from .runs import Runs
from .series import EVERY, PREDICTION, TRAIN, Over, paired

MAIN = "2 pixels, black"
"""The border of the zoo's networks, which are the main set."""
BORDERS = {"zero-4": "4 pixels, black", "reflect-4": "4 pixels, reflected"}
"""The sets beside it, by the name of their folder, and what they are called."""


def border_runs(runs: Runs) -> dict[str, Runs]:
    """The results of each set; those of a set that was not measured are empty."""
    folder = runs.plan_folder(METHODS).parent
    return {name: Runs(folder / f"border-{name}", seed=runs.seed) for name in BORDERS}


def _gains(runs: Runs) -> FigureVariant:
    """The gain in accuracy by severity: a box over the networks of each set."""
    sets = {BORDERS[name]: of_set for name, of_set in border_runs(runs).items() if METHODS in of_set.measured}
    if not sets:
        raise NotMeasured("no set of the border study was measured")
    if METHODS in runs.measured:
        sets = {MAIN: runs, **sets}
    parts = []
    for name, of_set in sets.items():
        train, prediction = (
            series.values(of_set, "accuracy", EVERY).groupby(["severity", "model"], observed=True)["value"].mean()
            for series in (TRAIN, PREDICTION)
        )
        parts.append((prediction - train).reset_index().assign(series=name))
    values = pd.concat(parts, ignore_index=True).rename(columns={"model": "what"})
    styles = [SeriesStyle(name, hue, False) for name, hue in zip(sets, HUES, strict=False)]
    title = "Gain of prediction-time BN in accuracy, by the border of the training crops"
    return FigureVariant(box_chart(values, "accuracy", styles, over="network").properties(title=title), styles)


def gain_difference(first: Runs, second: Runs, over: Over) -> str:
    """How much more prediction-time BN gains under shift with one set of networks than with another, in points.

    Corruptions are paired; networks are different ones, so their interval is Welch's.
    """
    gains = []
    for of_set in (first, second):
        table = paired(of_set, (TRAIN, PREDICTION), "accuracy", over=over)
        gains.append(table[PREDICTION.label] - table[TRAIN.label])
    if over == "corruption":
        interval = t_mean((gains[0] - gains[1]).dropna().to_numpy(), level=LEVEL)
    else:
        interval = welch(*(values.to_numpy() for values in gains))
    return "{:.1f} ({:.1f} to {:.1f})".format(*(100 * x for x in (interval.estimate, interval.low, interval.high)))


BORDER_FIGURE = FigureSpec(
    "border-gain",
    "What prediction-time BN gains over train BN, for networks trained with each border",
    "Boxes over the networks; the values of a network are means over the corruptions.",
    (),
    {(): _gains},
)
