"""The tables and figures of docs/auto.md, generated from results.

The page marks their places with ``<!-- auto NAME -->`` and ``<!-- /auto NAME -->``. `predbn paper document --auto PAGE`
fills in the tables, and with `--figures FOLDER` also the figures. A table without results says why.
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
from predbn.report import Chart, metric_info, save, write_file

from .experiments.auto import EXPERIMENT
from .experiments.auto_figures import FIGURE_NAMES
from .experiments.auto_series import (
    gains_in_standard_errors,
    gains_over_better,
    in_order,
    mean_over_networks,
    on_mixtures,
    on_same_images,
    smallest_gain,
    with_batch_size,
    with_method,
    with_past,
)
from .plans.auto import (
    AUTO,
    LARGEST,
    NETWORKS,
    ORDERS,
    PAST_SIZES,
    PAST_STRATEGIES,
    PRIORS,
    RESNET20_PLANS,
    SKEWED,
    UNCALIBRATED,
    NetworkPlans,
)
from .runs import Runs
from .series import CLEAN, EVERY, METRICS, SHIFTED, Series
from .verify import verify

_CLEAR = 2
"""A gain or loss on one split is clear from this many standard errors over its images."""


def auto_tables(runs: Runs) -> dict[str, str]:
    """Every table as Markdown, by name."""
    makers: dict[str, Callable[[], str]] = {"headline": partial(_headline, runs), "verdicts": partial(_verdicts, runs)}
    for plans in NETWORKS:
        makers[f"guarantee {plans.label}"] = partial(_guarantee, runs, plans)
        makers[f"sizes {plans.label}"] = partial(_sizes, runs, plans)
        makers[f"streams {plans.label}"] = partial(_streams, runs, plans)
        makers[f"methods {plans.label}"] = partial(_methods, runs, plans)
    makers["past"] = partial(_past, runs)
    return {name: _table_or_reason(make) for name, make in makers.items()}


def auto_charts(runs: Runs) -> dict[str, tuple[str, Chart]]:
    """Title and chart of each figure for each network, by file name; in accuracy if there is a choice of metrics."""
    charts: dict[str, tuple[str, Chart]] = {}
    for figure in EXPERIMENT.figure_specs(runs):
        for (network, *metric), draw in figure.charts.items():
            if metric in ([], [metric_info("accuracy").label]):
                try:
                    charts[f"{figure.name}-{network}.svg"] = f"{figure.title}, {network}", draw().chart
                except NotMeasured:
                    continue
    return charts


def fill_page(path: str | Path, runs: Runs, *, figures: str | Path | None = None) -> Path:
    """Write the tables into a page, each between its marks; with `figures`, draw the figures there and link them."""
    path = Path(path)
    text = path.read_text(encoding="utf-8")
    parts, charts = auto_tables(runs), {}
    if figures is not None:
        link = Path(os.path.relpath(figures, path.parent)).as_posix()
        charts = auto_charts(runs)
        for name, network in product(FIGURE_NAMES, (plans.label for plans in NETWORKS)):
            file = f"{name}-{network}.svg"
            image = f"![{charts[file][0]}]({link}/{file})" if file in charts else "Not measured."
            parts[f"figure {name} {network}"] = image
    for name, part in parts.items():
        marks = re.compile(rf"(<!-- auto {re.escape(name)} -->\n).*?(<!-- /auto {re.escape(name)} -->)", re.DOTALL)
        if not marks.search(text):
            kind = "figure" if name.startswith("figure") else "table"
            raise PaperError(
                f"{path} has no place for the {kind} {name!r}: add <!-- auto {name} --> and <!-- /auto {name} -->."
            )
        text = marks.sub(lambda match, part=part: f"{match[1]}{part}\n{match[2]}", text)  # type: ignore[misc]
    for file, (_, chart) in charts.items():
        save(chart, Path(str(figures)) / file)
    return write_file(path, text.encode())


def _table_or_reason(make: Callable[[], str]) -> str:
    try:
        return make()
    except NotMeasured as error:
        return f"Not measured: {error}."


def _headline(runs: Runs) -> str:
    """Mean accuracy under shift of train, batch and auto, by network and batch size."""
    lines: list[str] = []
    for plans in NETWORKS:
        cells = gains_over_better(runs, plans)
        means = cells[cells["severity"] > 0].groupby("batch_size")[["train", "batch", AUTO]].mean()
        if not lines:
            lines = _table_head(["batches of", *map(str, means.index)])
        for strategy in means:
            texts = [
                _bold_if(value == best, _percent(value))
                for value, best in zip(means[strategy], means.max(axis=1), strict=True)
            ]
            lines.append(_row([f"{plans.label}, `{strategy}`", *texts]))
    return "\n".join(lines)


def _verdicts(runs: Runs) -> str:
    (findings,) = verify(runs, [AUTO]).values()
    lines = ["| claim | | verdict |", "|---|---|---|"]
    for finding in findings:
        why = f": {finding.why}" if finding.why else ""
        lines.append(f"| {finding.claim.id} | {finding.claim.statement} | {finding.verdict.value}{why} |")
    return "\n".join(lines)


def _guarantee(runs: Runs, plans: NetworkPlans) -> str:
    """By batch size: the mean accuracies, and how far auto is behind the better of train and batch at worst."""
    has_seeds = plans is RESNET20_PLANS
    cells = gains_over_better(runs, plans)
    by_split = mean_over_networks(cells)
    heads = ["batch", "clean: train", "batch", "auto", "shifted: train", "batch", "auto", "splits lost by over ½ point"]
    if has_seeds:
        heads += ["worst split, mean over networks", "worst network and split"]
    else:
        heads += ["clearly worse", "clearly better", "worst split"]
    lines = _table_head(heads)
    for size, of_size in cells.groupby("batch_size"):
        means = [
            _percent(part[strategy].mean())
            for part in (of_size[of_size["severity"] == 0], of_size[of_size["severity"] > 0])
            for strategy in ("train", "batch", AUTO)
        ]
        gains = by_split[by_split["batch_size"] == size]
        lost = f"{(gains['gain'] < -0.005).sum()} of {len(gains)}"
        worst_split = _gain_and_split(smallest_gain(gains))
        if has_seeds:
            last = [worst_split, _gain_and_split(smallest_gain(of_size))]
        else:
            ratios = gains_in_standard_errors(runs, plans, of_size)
            last = [str((ratios < -_CLEAR).sum()), str((ratios > _CLEAR).sum()), worst_split]
        lines.append(_row([str(size), *means, lost, *last]))
    return "\n".join(lines)


def _sizes(runs: Runs, plans: NetworkPlans) -> str:
    """Accuracy, Brier score and ECE of every strategy by batch size, on the same images; the best is bold."""
    sizes = sorted(int(size) for size in runs.frame(plans.compared)["batch_size"].unique())
    columns = [(metric, size) for metric in METRICS for size in sizes]
    heads = [f"{metric_info(metric).label}: {size}" if size == sizes[0] else str(size) for metric, size in columns]
    means = {
        strategy: [
            float(on_same_images(plans, strategy, size).values(runs, metric, SHIFTED)["value"].mean())
            for metric, size in columns
        ]
        for strategy in ("train", "batch", *PRIORS, AUTO, SKEWED, UNCALIBRATED)
        if Series("", plans.compared, strategy, network=plans.network).is_measured(runs)
    }
    lines = _table_head(["", *heads])
    for strategy, values in means.items():
        cells = []
        for number, (metric, _) in enumerate(columns):
            sign = metric_info(metric).sign
            best = max(sign * others[number] for others in means.values())
            cells.append(_bold_if(sign * values[number] == best, metric_info(metric).number(values[number])))
        lines.append(_row([f"`{strategy}`", *cells]))
    return "\n".join(lines)


def _streams(runs: Runs, plans: NetworkPlans) -> str:
    """Accuracy on clean images and under shift in each order, and on mixed corruptions."""
    orders = [order for order in ("shuffled", *ORDERS) if order in set(runs.frame(plans.streams)["order"])]
    heads = ["", *(f"{part}, {order}" for order in orders for part in ("clean", "shifted")), "19 shifts mixed"]
    lines = _table_head(heads)
    for strategy in ("train", "batch", "prior(N=16)", "ema", AUTO, SKEWED):
        if not in_order(plans, strategy, orders[0]).is_measured(runs):
            continue
        cells = [
            _percent(in_order(plans, strategy, order).values(runs, "accuracy", severities)["value"].mean())
            for order in orders
            for severities in (CLEAN, SHIFTED)
        ]
        mixed = on_mixtures(plans, strategy)
        last = _percent(mixed.values(runs, "accuracy", EVERY)["value"].mean()) if mixed.is_measured(runs) else "–"
        lines.append(_row([f"`{strategy}`", *cells, last]))
    return "\n".join(lines)


def _past(runs: Runs) -> str:
    """Accuracy in small batches with and without the earlier batches of their stream."""
    lines = _table_head(["", *(f"{part}: {size}" for size in PAST_SIZES for part in ("clean", "shifted"))])
    for strategy in PAST_STRATEGIES:
        cells = [
            _percent(with_past(RESNET20_PLANS, strategy, size).values(runs, "accuracy", severities)["value"].mean())
            for size in PAST_SIZES
            for severities in (CLEAN, SHIFTED)
        ]
        lines.append(_row([f"`{strategy}`", *cells]))
    return "\n".join(lines)


def _methods(runs: Runs, plans: NetworkPlans) -> str:
    """The methods with three strategies in batches of 500, means over the shifted splits."""
    with_batch_size(plans, AUTO, LARGEST).values(runs, "accuracy", SHIFTED)  # raises NotMeasured without auto
    lines = _table_head(["", *(metric_info(metric).label for metric in METRICS)])
    for method, strategy in product(("vanilla", "temperature", "ensemble"), ("train", "batch", AUTO)):
        series = with_method(plans, method, strategy)
        if series.is_measured(runs):
            means = [float(series.values(runs, metric, SHIFTED)["value"].mean()) for metric in METRICS]
            cells = [metric_info(metric).number(value) for metric, value in zip(METRICS, means, strict=True)]
            lines.append(_row([series.label, *cells]))
    return "\n".join(lines)


def _gain_and_split(row: pd.Series) -> str:
    split = f"{row['corruption']} {row['severity']}".replace("_", " ").replace("clean 0", "clean")
    return f"{metric_info('accuracy').change(row['gain'])} ({split})"


def _percent(value: float) -> str:
    return metric_info("accuracy").number(value)


def _bold_if(is_best: bool, text: str) -> str:
    return f"**{text}**" if is_best else text


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table_head(heads: Sequence[str]) -> list[str]:
    return [_row(heads), "|---|" + "--:|" * (len(heads) - 1)]
