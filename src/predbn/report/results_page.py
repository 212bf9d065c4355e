"""The report of an evaluation: what was found, figures, tables, run card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from predbn.evaluation import Results

from .figure import Figure, FigureVariant
from .figures import boxes, heatmap, reliability
from .frames import (
    BASELINE,
    CLEAN,
    KEYS,
    attacks,
    check_reliability,
    check_results,
    list_series,
    main_setting,
    methods,
    split_by_setting,
    strategies,
)
from .headline import headline
from .intervals import interval_note, mean_intervals
from .metric_info import capitalise, metric_info, sort_metrics
from .pictures import example_pictures
from .save import write_file
from .strategy_info import strategy_labels, strategy_sentences
from .style import series_styles
from .tables import by_split, severity_tables, split_table
from .templates import render_page

TITLE = "Prediction-time batch normalisation under shift"
MAX_SERIES = 8
"""How many series can be told apart in one figure."""

Parts = dict[tuple[str, str], pd.DataFrame]
"""Rows by (setting, method)."""

_GAIN_CAPTION = (
    "Each cell is one split: the value with prediction-time statistics against the one with the training "
    "statistics, signed so that positive and blue is better, negative and orange is worse, whichever way the "
    "metric points. Differences in accuracy are percentage points."
)
_RELIABILITY_CAPTION = (
    "Predictions sorted into bins by confidence; each dot is a bin, its area the share of predictions in it. On "
    "the diagonal a model is as often right as it says; below, it is over-confident. All corruptions of a "
    "severity are pooled."
)


def write(
    path: str | Path,
    frame: pd.DataFrame,
    card: Mapping[str, Any],
    *,
    reliability: pd.DataFrame | None = None,
    hits: pd.DataFrame | None = None,
    examples: pd.DataFrame | None = None,
    title: str | None = None,
    recommendation: Sequence[str] = (),
) -> Path:
    """Write the report of a run atomically as one self-contained HTML file.

    All but `card` are tables of `Results`: `hits` give intervals over images, `examples` are shown as pictures.
    It ends in the `recommendation`: the answer, then the reasons, as `predbn.recommendation` gives them.
    """
    results = check_results(frame)
    by_setting = split_by_setting(results)
    captions = {setting: f", {setting}" if setting else "" for setting in by_setting}
    images = find_in_card(card, "images")
    intervals = {setting: mean_intervals(rows, hits, images) for setting, rows in by_setting.items()}
    tables = {setting: severity_tables(rows, intervals[setting]) for setting, rows in by_setting.items()}
    split_frames = {setting: by_split(rows) for setting, rows in by_setting.items()}
    page = render_page(
        "results.html",
        title or TITLE,
        results_figures(frame, reliability, hits=hits, images=images),
        chosen=main_setting(by_setting),
        findings=headline(frame),
        facts=_facts(results, _images_per_split(card, reliability)),
        has_baseline=any(style.baseline for style in series_styles(results)),
        strategies=strategy_sentences(strategies(results)),
        interval_note=interval_note(pd.concat(intervals.values())),
        pictures=example_pictures(examples),
        summary=[(setting, first, others) for setting, (first, *others) in tables.items()],
        other_metrics=[metric_info(metric).label for metric in sort_metrics(results["metric"])[1:]],
        splits=[split_table(rows, f"Every split{captions[setting]}") for setting, rows in split_frames.items()],
        recommendation=list(recommendation),
        split_count=f"{sum(map(len, split_frames.values())):,}",
        card=card,
    )
    return write_file(Path(path), page)


def write_results(
    path: str | Path, results: Results, *, title: str | None = None, recommendation: Sequence[str] = ()
) -> Path:
    """Write the report of a run with everything that its results allow."""
    tables = {"reliability": results.reliability, "hits": results.hits, "examples": results.examples}
    return write(path, results.frame, results.card, title=title, recommendation=recommendation, **tables)


def _facts(results: pd.DataFrame, images: int | None) -> list[str]:
    """What was evaluated, in short phrases."""
    shifted = results[results["corruption"] != CLEAN]
    corruptions, severities = shifted["corruption"].nunique(), shifted["severity"].nunique()
    models = sorted(set(results["model"]))
    facts = [f"{images:,} images per split"] if images else []
    if corruptions:
        facts.append(
            f"{corruptions} corruption{'s' if corruptions > 1 else ''} × "
            f"{severities} {'severities' if severities > 1 else 'severity'}"
        )
    facts.append(f"batch size {', '.join(map(str, sorted(set(results['batch_size']))))}")
    if attacked := attacks(results):
        facts.append(f"{', '.join(attacked)}: only the images that are not the attacker's are scored")
    if methods(results) != ["vanilla"]:
        facts.append(f"method{'s' if len(methods(results)) > 1 else ''} {', '.join(methods(results))}")
    facts.append(models[0] if len(models) == 1 else f"{len(models)} models")
    return facts


def _images_per_split(card: Mapping[str, Any], reliability: pd.DataFrame | None) -> int | None:
    """How many images a split has: counted in the reliability bins, otherwise as the run card says."""
    if reliability is not None and not reliability.empty:
        return int(reliability.groupby(list(KEYS))["count"].sum().max())
    images = find_in_card(card, "images")
    return images if isinstance(images, int) else None


def find_in_card(card: Mapping[str, Any], key: str) -> Any:
    """The first value of a key at any depth of a run card, or None."""
    if key in card:
        return card[key]
    for value in card.values():
        if isinstance(value, Mapping) and (found := find_in_card(value, key)) is not None:
            return found
    return None


def results_figures(
    frame: pd.DataFrame,
    reliability_bins: pd.DataFrame | None = None,
    *,
    hits: pd.DataFrame | None = None,
    images: int | None = None,
) -> list[Figure]:
    """The figures of a report in reading order: boxes for each metric, gains over the baseline, reliability.

    `hits` of this many `images` per split give intervals over images.
    """
    results = check_results(frame)
    metrics = sort_metrics(results["metric"])
    parts = _by_setting_and_method(results)
    intervals = {choice: mean_intervals(rows, hits, images) for choice, rows in parts.items()}
    figures = [_box_figure(metric, parts, intervals) for metric in metrics]
    figures.append(_gain_figure([metric for metric in metrics if metric_info(metric).better], results))
    if reliability_bins is not None and not reliability_bins.empty:
        figures.append(_reliability_figure(check_reliability(reliability_bins)))
    return [figure for figure in figures if figure.variants]


def _box_figure(metric: str, parts: Parts, intervals: Parts) -> Figure:
    info = metric_info(metric)
    direction = f" {capitalise(info.direction)}." if info.direction else ""
    figure = Figure(metric, info.title, f"{info.description}{direction}".strip(), ("setting", "method"))
    for choice, rows in parts.items():
        if metric in set(rows["metric"]):
            chart = boxes(rows, metric, over=_box_over(rows), intervals=intervals[choice])
            figure.variants[choice] = FigureVariant(chart, series_styles(rows))
    return figure


def _box_over(rows: pd.DataFrame) -> str:
    """What a box is a distribution over: corruptions, or if there is only one, seeds or models."""
    if rows.loc[rows["corruption"] != CLEAN, "corruption"].nunique() > 1:
        return "corruption"
    return next((key for key in ("seed", "model") if rows[key].nunique() > 1), "corruption")


def _gain_figure(metrics: list[str], frame: pd.DataFrame) -> Figure:
    title, choices = "Where it helps, and where it does not", ("metric", "comparison", "setting")
    figure = Figure("gain", title, _GAIN_CAPTION, choices)
    has_methods = frame["method"].nunique() > 1
    for metric in metrics:
        for setting, rows in split_by_setting(frame).items():
            of_metric = rows[rows["metric"] == metric]
            for method in methods(of_metric):
                names = strategies(of_metric[of_metric["method"] == method])
                labels = strategy_labels(names)
                for strategy in names[1:] if BASELINE in names else []:
                    comparison = f"{labels[strategy]} over {BASELINE}"
                    comparison = f"{method}: {comparison}" if has_methods else comparison
                    choice = (metric_info(metric).label, comparison, setting)
                    chart = heatmap(rows, metric, method=method, strategy=strategy)
                    figure.variants[choice] = FigureVariant(chart)
    return figure


def _reliability_figure(bins: pd.DataFrame) -> Figure:
    figure = Figure("reliability", "Reliability", _RELIABILITY_CAPTION, ("setting", "method"))
    for choice, rows in _by_setting_and_method(bins).items():
        figure.variants[choice] = FigureVariant(reliability(rows), series_styles(rows))
    return figure


def _by_setting_and_method(frame: pd.DataFrame) -> Parts:
    """The rows of each (setting, method), or of all methods (an empty name) if their series can be told apart."""
    parts: Parts = {}
    for setting, rows in split_by_setting(frame).items():
        if len(list_series(rows)) <= MAX_SERIES:
            parts[setting, ""] = rows
        else:
            parts |= {(setting, method): rows[rows["method"] == method] for method in methods(rows)}
    return parts
