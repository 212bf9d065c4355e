"""The report of an evaluation: findings, figures, tables, run card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from predbn.evaluation import Results

from .figure import Figure, FigureVariant
from .figures import boxes, heatmap, reliability
from .frames import (
    BASELINE,
    CLEAN,
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
"""With more series than this, each method gets a figure of its own."""

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


def write_results(path: str | Path, results: Results, *, recommendation: Sequence[str] = ()) -> Path:
    """Write the report of a run atomically as one self-contained HTML file.

    It ends with the `recommendation`: the answer, then the reasons, as `predbn.recommendation` gives them.
    """
    frame = check_results(results.frame)
    by_setting = split_by_setting(frame)
    images = _images_per_split(results)
    intervals = {setting: mean_intervals(rows, results.hits, images) for setting, rows in by_setting.items()}
    tables = {setting: severity_tables(rows, intervals[setting]) for setting, rows in by_setting.items()}
    split_frames = {setting: by_split(rows) for setting, rows in by_setting.items()}
    page = render_page(
        "results.html",
        TITLE,
        results_figures(results),
        chosen=main_setting(by_setting),
        findings=headline(frame),
        facts=_facts(frame, images),
        has_baseline=any(style.baseline for style in series_styles(frame)),
        strategies=strategy_sentences(strategies(frame)),
        interval_note=interval_note(pd.concat(intervals.values())),
        pictures=example_pictures(results.examples),
        summary=[(setting, first, others) for setting, (first, *others) in tables.items()],
        other_metrics=[metric_info(metric).label for metric in sort_metrics(frame["metric"])[1:]],
        splits=[
            split_table(rows, f"Every split{f', {setting}' if setting else ''}")
            for setting, rows in split_frames.items()
        ],
        recommendation=list(recommendation),
        split_count=f"{sum(map(len, split_frames.values())):,}",
        card=results.card,
    )
    return write_file(Path(path), page)


def _facts(frame: pd.DataFrame, images: int | None) -> list[str]:
    """What was evaluated, in short phrases."""
    shifted = frame[frame["corruption"] != CLEAN]
    corruptions, severities = shifted["corruption"].nunique(), shifted["severity"].nunique()
    models = sorted(set(frame["model"]))
    facts = [f"{images:,} images per split"] if images else []
    if corruptions:
        facts.append(f"corruptions × severities: {corruptions} × {severities}")
    facts.append(f"batch size {', '.join(map(str, sorted(set(frame['batch_size']))))}")
    if attacked := attacks(frame):
        facts.append(f"{', '.join(attacked)}: only the images that are not the attacker's are scored")
    if methods(frame) != ["vanilla"]:
        facts.append(f"method {', '.join(methods(frame))}")
    facts.append(models[0] if len(models) == 1 else f"{len(models)} models")
    return facts


def _images_per_split(results: Results) -> int | None:
    images = results.card.get("data", {}).get("images")
    return images if isinstance(images, int) else None


def results_figures(results: Results) -> list[Figure]:
    """The figures of a report in reading order: boxes for each metric, gains over the baseline, reliability."""
    frame = check_results(results.frame)
    metrics = sort_metrics(frame["metric"])
    parts = _by_setting_and_method(frame)
    images = _images_per_split(results)
    intervals = {choice: mean_intervals(rows, results.hits, images) for choice, rows in parts.items()}
    figures = [_box_figure(metric, parts, intervals) for metric in metrics]
    figures.append(_gain_figure([metric for metric in metrics if metric_info(metric).better], frame))
    if not results.reliability.empty:
        figures.append(_reliability_figure(check_reliability(results.reliability)))
    return [figure for figure in figures if figure.variants]


def _box_figure(metric: str, parts: Parts, intervals: Parts) -> Figure:
    info = metric_info(metric)
    direction = f" {capitalise(info.direction)}." if info.direction else ""
    figure = Figure(metric, info.title, f"{info.description}{direction}".strip(), ("setting", "method"))
    for choice, rows in parts.items():
        if metric in set(rows["metric"]):
            chart = boxes(rows, metric, intervals[choice])
            figure.variants[choice] = FigureVariant(chart, series_styles(rows))
    return figure


def _gain_figure(metrics: list[str], frame: pd.DataFrame) -> Figure:
    title, choices = "Where it helps, and where it does not", ("metric", "comparison", "setting")
    figure = Figure("gain", title, _GAIN_CAPTION, choices)
    for metric in metrics:
        for setting, of_setting in split_by_setting(frame).items():
            rows = of_setting[of_setting["metric"] == metric]
            for method in methods(rows):
                names = strategies(rows[rows["method"] == method])
                labels = strategy_labels(names)
                for strategy in names[1:] if BASELINE in names else []:
                    prefix = f"{method}: " if frame["method"].nunique() > 1 else ""
                    choice = (metric_info(metric).label, f"{prefix}{labels[strategy]} over {BASELINE}", setting)
                    figure.variants[choice] = FigureVariant(heatmap(rows, metric, method=method, strategy=strategy))
    return figure


def _reliability_figure(bins: pd.DataFrame) -> Figure:
    figure = Figure("reliability", "Reliability", _RELIABILITY_CAPTION, ("setting", "method"))
    for choice, rows in _by_setting_and_method(bins).items():
        figure.variants[choice] = FigureVariant(reliability(rows), series_styles(rows))
    return figure


def _by_setting_and_method(frame: pd.DataFrame) -> Parts:
    """The rows of each (setting, method), or of all methods (an empty name) if their series can be distinguished."""
    parts: Parts = {}
    for setting, rows in split_by_setting(frame).items():
        if len(list_series(rows)) <= MAX_SERIES:
            parts[setting, ""] = rows
        else:
            parts |= {(setting, method): rows[rows["method"] == method] for method in methods(rows)}
    return parts
