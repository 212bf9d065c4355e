"""The tables and figures of docs/auto.md, from results.

The page has places for them, ``<!-- auto NAME -->`` to ``<!-- /auto NAME -->``; `predbn paper document --auto PAGE`
fills those of the tables, with `--figures FOLDER` also those of the figures. What is not measured is said to be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd

from predbn.common import NotMeasured, PaperError
from predbn.report import Chart, meaning, save
from predbn.report import write_file as store

from .auto_plans import (
    ARMS,
    AUTO,
    CIFAR_ARM,
    LARGEST,
    ORDERS,
    PAST_SIZES,
    PAST_STRATEGIES,
    PRIORS,
    SKEWED,
    UNCALIBRATED,
    Arm,
)
from .experiments.auto import EXPERIMENT
from .experiments.auto_figures import PANELS
from .experiments.auto_series import (
    against_the_better,
    at,
    by_split,
    clearly,
    compared,
    in_order,
    lowest,
    mixed,
    on_top,
    with_its_past,
)
from .runs import Runs
from .series import EVERY, SHIFTED, Series
from .verify import verify

__all__ = ["auto_figures", "auto_tables", "fill_page"]

_ROWS = ("train", "batch", *PRIORS, AUTO, SKEWED, UNCALIBRATED)
_STREAMS = ("train", "batch", "prior(N=16)", "ema", AUTO, SKEWED)
_METHODS = ("vanilla", "temperature", "ensemble")
_CLEAR = 2
"""What is gained or lost is clear from so many standard errors over the images of a split on."""
_NO_FIGURE = "Not measured."


def auto_tables(runs: Runs) -> dict[str, str]:
    """Every table as Markdown, by name."""
    made: dict[str, Callable[[], str]] = {"headline": partial(_headline, runs), "verdicts": partial(_verdicts, runs)}
    for arm in ARMS:
        name = arm.single
        made[f"guarantee {name}"] = partial(_guarantee, runs, arm)
        made[f"sizes {name}"] = partial(_sizes, runs, arm)
        made[f"streams {name}"] = partial(_streams, runs, arm)
        made[f"methods {name}"] = partial(_methods, runs, arm)
    made["past"] = partial(_past, runs)
    return {name: _or_why_not(make) for name, make in made.items()}


def fill_page(path: str | Path, runs: Runs, *, figures: str | Path | None = None) -> Path:
    """Put the tables into a page, each between its marks; and the figures, drawn into the folder `figures`."""
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    parts, charts = auto_tables(runs), {}
    if figures is not None:
        link = Path(os.path.relpath(figures, path.parent)).as_posix()
        charts = auto_figures(runs)
        for panel, network in product(PANELS, (arm.single for arm in ARMS)):
            file = f"{panel}-{network}.svg"
            parts[f"figure {panel} {network}"] = (
                f"![{charts[file][0]}]({link}/{file})" if file in charts else _NO_FIGURE
            )
    for name, part in parts.items():
        place = re.compile(rf"(<!-- auto {re.escape(name)} -->\n).*?(<!-- /auto {re.escape(name)} -->)", re.DOTALL)
        if not place.search(text):
            what = "figure" if name.startswith("figure") else "table"
            raise PaperError(
                f"{path} has no place for the {what} {name!r}: write <!-- auto {name} --> and its end there."
            )
        text = place.sub(lambda found, part=part: f"{found[1]}{part}\n{found[2]}", text)  # type: ignore[misc]
    for file, (_, chart) in charts.items():
        save(chart, Path(str(figures)) / file)
    return store(path, text.encode())


def auto_figures(runs: Runs) -> dict[str, tuple[str, Chart]]:
    """Title and chart of what can be drawn, by the name of its file: each figure for each network, in accuracy where
    there is a choice."""
    found: dict[str, tuple[str, Chart]] = {}
    for panel in EXPERIMENT.panels(runs):
        for (network, *_), variant in panel.variants.items():
            found.setdefault(f"{panel.name}-{network}.svg", (f"{panel.title}, {network}", variant.chart))
    return found


def _or_why_not(make: Callable[[], str]) -> str:
    try:
        return make()
    except NotMeasured as lack:
        return f"Not measured: {lack}."


def _headline(runs: Runs) -> str:
    """Mean accuracy under shift of the three, by network and size."""
    lines: list[str] = []
    for arm in ARMS:
        cells = against_the_better(runs, arm)
        means = cells[cells["severity"] > 0].groupby("batch_size")[["train", "batch", AUTO]].mean()
        if not lines:
            lines = [_row(["batches of", *map(str, means.index)]), _rule(1 + len(means))]
        for name in means:
            best = {size for size, row in means.iterrows() if row[name] == row.max()}
            values = [_percent(value) for value in means[name]]
            shown = [f"**{v}**" if size in best else v for size, v in zip(means.index, values, strict=True)]
            lines.append(_row([f"{arm.single}, `{name}`", *shown]))
    return "\n".join(lines)


def _verdicts(runs: Runs) -> str:
    (findings,) = verify(runs, [AUTO]).values()
    lines = ["| claim | | verdict |", "|---|---|---|"]
    for finding in findings:
        why = f": {finding.why}" if finding.why else ""
        lines.append(f"| {finding.claim.id} | {finding.claim.statement} | {finding.verdict.value}{why} |")
    return "\n".join(lines)


def _guarantee(runs: Runs, arm: Arm) -> str:
    """For each size: mean accuracy of the three, and how far auto is from the better of the two, at worst."""
    cells = against_the_better(runs, arm)
    split = by_split(cells)
    heads = ["batch", "clean: train", "batch", "auto", "shifted: train", "batch", "auto", "splits lost by over ½ point"]
    if arm is CIFAR_ARM:
        heads += ["worst split, mean over networks", "worst network and split"]
    else:
        heads += ["clearly worse", "clearly better", "worst split"]
    lines = [_row(heads), _rule(len(heads))]
    for size, own in cells.groupby("batch_size"):
        means = [
            _percent(part[name].mean())
            for part in (own[own["severity"] == 0], own[own["severity"] > 0])
            for name in ("train", "batch", AUTO)
        ]
        gains = split[split["batch_size"] == size]
        lost = f"{(gains['gain'] < -0.005).sum()} of {len(gains)}"
        worst_split, single = lowest(gains), lowest(own)
        where = f"{_points(worst_split['gain'])} ({_split(worst_split)})"
        if arm is CIFAR_ARM:
            at_worst = [where, f"{_points(single['gain'])} ({_split(single)})"]
        else:
            errors = clearly(runs, arm, own)
            at_worst = [str((errors < -_CLEAR).sum()), str((errors > _CLEAR).sum()), where]
        lines.append(_row([str(size), *means, lost, *at_worst]))
    return "\n".join(lines)


def _sizes(runs: Runs, arm: Arm) -> str:
    """Accuracy, Brier score and ECE of every strategy by size, on the same images."""
    sizes = sorted(int(size) for size in runs.frame(arm.compared)["batch_size"].unique())
    metrics = ("accuracy", "brier", "ece")
    heads = [
        "",
        *(
            f"{meaning(metric).label}: {size}" if size == sizes[0] else str(size)
            for metric in metrics
            for size in sizes
        ),
    ]
    lines = [_row(heads), _rule(len(heads))]
    found: dict[str, list[float]] = {}
    for strategy in _ROWS:
        if Series("", arm.compared, strategy, network=arm.network).is_there(runs):
            found[strategy] = [
                float(compared(arm, strategy, size).values(runs, metric, SHIFTED)["value"].mean())
                for metric in metrics
                for size in sizes
            ]
    signs = [meaning(metric).sign for metric in metrics for _ in sizes]
    for strategy, values in found.items():
        cells = []
        for place, value in enumerate(values):
            text = meaning(metrics[place // len(sizes)]).number(value)
            best = max(signs[place] * other[place] for other in found.values())
            cells.append(f"**{text}**" if signs[place] * value == best else text)
        lines.append(_row([f"`{strategy}`", *cells]))
    return "\n".join(lines)


def _streams(runs: Runs, arm: Arm) -> str:
    """Accuracy on clean images and under shift, in each order, and where shifts are mixed."""
    orders = [order for order in ("shuffled", *ORDERS) if order in set(runs.frame(arm.streams)["order"])]
    heads = ["", *(f"{part}, {order}" for order in orders for part in ("clean", "shifted")), "19 shifts mixed"]
    lines = [_row(heads), _rule(len(heads))]
    for strategy in _STREAMS:
        if not in_order(arm, strategy, orders[0]).is_there(runs):
            continue
        cells = [
            _percent(in_order(arm, strategy, order).values(runs, "accuracy", severities)["value"].mean())
            for order in orders
            for severities in ((0,), SHIFTED)
        ]
        mixture = mixed(arm, strategy)
        last = _percent(mixture.values(runs, "accuracy", EVERY)["value"].mean()) if mixture.is_there(runs) else "–"
        lines.append(_row([f"`{strategy}`", *cells, last]))
    return "\n".join(lines)


def _past(runs: Runs) -> str:
    """Accuracy in small batches with and without the past of their stream."""
    heads = ["", *(f"{part}: {size}" for size in PAST_SIZES for part in ("clean", "shifted"))]
    lines = [_row(heads), _rule(len(heads))]
    for strategy in PAST_STRATEGIES:
        cells = [
            _percent(with_its_past(CIFAR_ARM, strategy, size).values(runs, "accuracy", severities)["value"].mean())
            for size in PAST_SIZES
            for severities in ((0,), SHIFTED)
        ]
        lines.append(_row([f"`{strategy}`", *cells]))
    return "\n".join(lines)


def _methods(runs: Runs, arm: Arm) -> str:
    """The methods with three strategies in batches of 500, means over the shifted splits."""
    metrics = ("accuracy", "brier", "ece")
    at(arm, AUTO, LARGEST).values(runs, "accuracy", SHIFTED)  # without auto there is nothing to compare
    lines = [_row(["", *(meaning(metric).label for metric in metrics)]), _rule(1 + len(metrics))]
    for method in _METHODS:
        for strategy in ("train", "batch", AUTO):
            series = on_top(arm, method, strategy)
            if series.is_there(runs):
                values = [float(series.values(runs, metric, SHIFTED)["value"].mean()) for metric in metrics]
                cells = [meaning(metric).number(value) for metric, value in zip(metrics, values, strict=True)]
                lines.append(_row([series.label, *cells]))
    return "\n".join(lines)


def _split(row: pd.Series) -> str:
    return f"{row['corruption']} {row['severity']}".replace("_", " ").replace("clean 0", "clean")


def _percent(value: float) -> str:
    return meaning("accuracy").number(value)


def _points(value: float) -> str:
    return meaning("accuracy").change(value)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|---|" + "--:|" * (columns - 1)
