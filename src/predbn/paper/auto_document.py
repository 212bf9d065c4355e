"""The tables and figures of docs/auto.md, generated from results.

The page marks their places with ``<!-- auto NAME -->`` and ``<!-- /auto NAME -->``. `predbn paper document --auto PAGE`
fills in the tables, and with `--figures FOLDER` also the figures. A table without results says why.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path

import pandas as pd

from predbn.common import NotMeasured, PaperError
from predbn.report import Chart, metric_info, save, write_file
from predbn.shifts import names

from .experiments.auto import EXPERIMENT
from .experiments.auto_figures import FIGURE_NAMES
from .experiments.auto_series import (
    gains_in_standard_errors,
    gains_over_better,
    held_out,
    in_order,
    mean_over_networks,
    on_mixtures,
    on_same_images,
    smallest_gain,
    with_all_classes,
    with_attack,
    with_batch_size,
    with_method,
)
from .markdown import bold_best, markdown_table
from .plans.auto import (
    ATTACKED,
    AUTO,
    EVERYONE,
    HELD_OUT,
    IMAGENET_PRIORS,
    LARGEST,
    NETWORKS,
    ONE_PASS,
    ORDERS,
    PRIORS,
    RESNET20_PLANS,
    SKEWED,
    TARGETED,
    UNCALIBRATED,
    NetworkPlans,
)
from .runs import Runs
from .series import CLEAN, EVERY, METRICS, SHIFTED, Series, Severities
from .verify import verify

_CLEAR = 2
"""A gain or loss on one split is clear from this many standard errors over its images."""
_HEADLINE_ORDERS = ("dirichlet:0.1", "by_class")
_HEADLINE_SEVERITIES = {RESNET20_PLANS.label: (1, 3, 5)}
"""3 for other networks."""
_UNSEEN = {"clean", *names("standard")}
"""The corruptions on which nothing about `auto` was chosen."""
_HELD_OUT_STRATEGIES = ("train", "batch", *IMAGENET_PRIORS, ONE_PASS, AUTO)
_SPECS = {ONE_PASS: "auto(passes=1)", UNCALIBRATED: "auto(calibrated=False)"}


def auto_tables(runs: Runs) -> dict[str, str]:
    """Every table as Markdown, by name."""
    by_network = {"guarantee": _guarantee, "sizes": _sizes, "streams": _streams, "methods": _methods}
    return {
        "headline": _table_or_reason(_headline, runs),
        "verdicts": _table_or_reason(_verdicts, runs),
        "held out": _table_or_reason(_held_out, runs),
        "attacks": _table_or_reason(_attacks, runs),
        **{
            f"{name} {plans.label}": _table_or_reason(make, runs, plans)
            for plans, (name, make) in product(NETWORKS, by_network.items())
        },
    }


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
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PaperError(f"{path} is not text in UTF-8 ({error.reason}): name a page such as docs/auto.md.") from None
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


def _table_or_reason(make: Callable[..., str], *arguments: object) -> str:
    try:
        return make(*arguments)
    except NotMeasured as error:
        return f"Not measured: {error}."


def _headline(runs: Runs) -> str:
    """Mean accuracy in batches of 100, on clean images and under the corruptions that were not used in development."""
    heads = ["", *(f"{name}, {part}" for name in ("mixed", "bursts", "sorted") for part in ("clean", "shifted"))]
    rows: list[Sequence[str]] = []
    strategies = ("train", "batch", "prior(N=16)", ONE_PASS, AUTO)
    for plans in NETWORKS:
        series = {
            each: [with_all_classes(plans, each), *(in_order(plans, each, order) for order in _HEADLINE_ORDERS)]
            for each in strategies
        }
        columns = []
        for stream, severities in product(range(3), (CLEAN, SHIFTED)):
            same = _HEADLINE_SEVERITIES.get(plans.label, (3,)) if severities is SHIFTED else severities
            means = [_mean_of_unseen(runs, series[each][stream], same) for each in strategies]
            if not any(means):
                raise NotMeasured(f"there are no results of the plans {plans.default} and {plans.streams}")
            best = max(value for value in means if value is not None)
            columns.append(["–" if v is None else f"**{_percent(v)}**" if v == best else _percent(v) for v in means])
        rows += zip([f"{plans.label}, {_as_code(strategy)}" for strategy in strategies], *columns, strict=True)
    return markdown_table(heads, rows)


def _mean_of_unseen(runs: Runs, series: Series, severities: Severities) -> float | None:
    """The mean over the corruptions not used in development, None if it was not measured."""
    if not series.is_measured(runs):
        return None
    values = series.values(runs, "accuracy", severities)
    return float(values[values["corruption"].isin(_UNSEEN)]["value"].mean())


def _held_out(runs: Runs) -> str:
    """Accuracy of the held-out networks on clean images and under shift."""
    heads = ["", *(f"{label}, {part}" for label in HELD_OUT for part in ("clean", "shifted"))]
    columns = [
        [held_out(network, plan, strategy).mean(runs, "accuracy", severities) for strategy in _HELD_OUT_STRATEGIES]
        for (network, plan), severities in product(HELD_OUT.values(), (CLEAN, SHIFTED))
    ]
    names = [_as_code(strategy) for strategy in _HELD_OUT_STRATEGIES]
    return markdown_table(heads, zip(names, *(bold_best("accuracy", column) for column in columns), strict=True))


def _verdicts(runs: Runs) -> str:
    (findings,) = verify(runs, [EXPERIMENT.id]).values()
    rows = [
        [each.claim.id, each.claim.statement, each.verdict.value + (f": {each.why}" if each.why else "")]
        for each in findings
    ]
    return markdown_table(["claim", "", "verdict"], rows, "lll")


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
    rows = []
    for size, of_size in cells.groupby("batch_size"):
        means = [
            _percent(part[strategy].mean())
            for part in (of_size[of_size["severity"] == 0], of_size[of_size["severity"] > 0])
            for strategy in ("train", "batch", ONE_PASS)
        ]
        gains = by_split[by_split["batch_size"] == size]
        lost = f"{(gains['gain'] < -0.005).sum()} of {len(gains)}"
        worst_split = _gain_and_split(smallest_gain(gains))
        if has_seeds:
            last = [worst_split, _gain_and_split(smallest_gain(of_size))]
        else:
            ratios = gains_in_standard_errors(runs, plans, of_size)
            last = [str((ratios < -_CLEAR).sum()), str((ratios > _CLEAR).sum()), worst_split]
        rows.append([str(size), *means, lost, *last])
    return markdown_table(heads, rows)


def _sizes(runs: Runs, plans: NetworkPlans) -> str:
    """Accuracy, Brier score and ECE of every strategy by batch size, on the same images; the best is bold."""
    sizes = sorted(int(size) for size in runs.frame(plans.compared)["batch_size"].unique())
    strategies = [
        strategy
        for strategy in ("train", "batch", *PRIORS, ONE_PASS, SKEWED, UNCALIBRATED)
        if Series("", plans.compared, strategy, network=plans.network).is_measured(runs)
    ]
    columns = [
        bold_best(metric, [on_same_images(plans, strategy, size).mean(runs, metric) for strategy in strategies])
        for metric, size in product(METRICS, sizes)
    ]
    heads = [
        f"{metric_info(metric).label}: {size}" if size == sizes[0] else str(size)
        for metric, size in product(METRICS, sizes)
    ]
    return markdown_table(["", *heads], zip(map(_as_code, strategies), *columns, strict=True))


def _streams(runs: Runs, plans: NetworkPlans) -> str:
    """Accuracy on clean images and under shift in each order, and on mixed corruptions."""
    orders = [order for order in ("shuffled", *ORDERS) if order in set(runs.frame(plans.streams)["order"])]
    heads = ["", *(f"{part}, {order}" for order in orders for part in ("clean", "shifted")), "19 shifts mixed"]
    rows = []
    for strategy in ("train", "batch", "prior(N=16)", "ema", ONE_PASS, SKEWED, AUTO):
        if in_order(plans, strategy, orders[0]).is_measured(runs):
            mixed = on_mixtures(plans, strategy)
            last = _percent(mixed.mean(runs, "accuracy", EVERY)) if mixed.is_measured(runs) else "–"
            rows.append(
                [
                    _as_code(strategy),
                    *_clean_and_shifted(runs, (in_order(plans, strategy, each) for each in orders)),
                    last,
                ]
            )
    return markdown_table(heads, rows)


def _attacks(runs: Runs) -> str:
    """How often the targeted attack succeeds, and the accuracy of the other images in both attacks and without them.

    A plan without results has no columns.
    """
    every = (
        ("targeted: success", TARGETED, "attacked:targeted", "success", SHIFTED),
        ("accuracy of the others", TARGETED, "attacked:targeted", "accuracy", SHIFTED),
        ("without attack", TARGETED, "shuffled", "accuracy", SHIFTED),
        ("everyone: accuracy of the others", EVERYONE, "attacked:everyone", "accuracy", CLEAN),
        ("without attack", EVERYONE, "shuffled", "accuracy", CLEAN),
    )
    measured = [column for column in every if column[1] in runs.measured]
    if not measured:
        raise NotMeasured(f"there are no results of the plans {TARGETED} and {EVERYONE}")
    columns = [
        [_percent(with_attack(each, plan, order).mean(runs, metric, severities)) for each in ATTACKED]
        for _, plan, order, metric, severities in measured
    ]
    heads = ["%", *(head for head, *_ in measured)]
    return markdown_table(heads, zip(map(_as_code, ATTACKED), *columns, strict=True))


def _clean_and_shifted(runs: Runs, series: Iterable[Series]) -> list[str]:
    return [_percent(each.mean(runs, "accuracy", severities)) for each in series for severities in (CLEAN, SHIFTED)]


def _methods(runs: Runs, plans: NetworkPlans) -> str:
    """The methods with three strategies in batches of 500, means over the shifted splits."""
    with_batch_size(plans, ONE_PASS, LARGEST).values(runs, "accuracy", SHIFTED)  # raises NotMeasured without auto
    combinations = product(("vanilla", "temperature", "ensemble"), ("train", "batch", ONE_PASS))
    every = [with_method(plans, method, strategy) for method, strategy in combinations]
    rows = [
        [series.label, *(metric_info(metric).number(series.mean(runs, metric)) for metric in METRICS)]
        for series in every
        if series.is_measured(runs)
    ]
    return markdown_table(["", *(metric_info(metric).label for metric in METRICS)], rows)


def _gain_and_split(row: pd.Series) -> str:
    split = f"{row['corruption']} {row['severity']}".replace("_", " ").replace("clean 0", "clean")
    return f"{metric_info('accuracy').change(row['gain'])} ({split})"


def _as_code(strategy: str) -> str:
    """How one would write a strategy today."""
    return f"`{_SPECS.get(strategy, strategy)}`"


def _percent(value: float) -> str:
    return metric_info("accuracy").number(value)
