"""Which figures a report has: each with its caption, and with variants where a reader has a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import altair as alt
import pandas as pd

from .figures import boxes, heatmap, reliability
from .frames import BASELINE, CLEAN, checked, checked_reliability, methods, series_of, settings, strategies
from .looks import Look, looks
from .meanings import meaning, ordered
from .save import save, suffix_of

__all__ = ["Panel", "Variant", "file_names", "panels", "save_all", "save_panels"]

MOST_SERIES = 8

Chart = alt.LayerChart | alt.FacetChart | alt.VConcatChart


@dataclass(frozen=True)
class Variant:
    """One chart, and the looks that its legend explains."""

    chart: Chart
    looks: list[Look] = field(default_factory=list)


@dataclass(frozen=True)
class Panel:
    """One figure. `choices` names what a reader may choose; `variants` has a chart for each combination of it."""

    name: str
    title: str
    caption: str
    choices: tuple[str, ...]
    variants: dict[tuple[str, ...], Variant] = field(default_factory=dict)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _parts(frame: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """The frame by (setting, method), all methods together (an empty name) where their series can be told apart."""
    parts: dict[tuple[str, str], pd.DataFrame] = {}
    for setting, part in settings(frame).items():
        if len(series_of(part)) <= MOST_SERIES:
            parts[setting, ""] = part
        else:
            parts |= {(setting, method): part[part["method"] == method] for method in methods(part)}
    return parts


def _over(part: pd.DataFrame) -> str:
    """What a box spreads over: corruptions, or where there is but one, seeds or models."""
    if part.loc[part["corruption"] != CLEAN, "corruption"].nunique() > 1:
        return "corruption"
    return next((key for key in ("seed", "model") if part[key].nunique() > 1), "corruption")


def _box_panel(metric: str, frame: pd.DataFrame) -> Panel:
    known = meaning(metric)
    direction = f" {_capital(known.direction)}." if known.direction else ""
    panel = Panel(metric, _capital(known.label), f"{known.sentence}{direction}".strip(), ("setting", "method"))
    for choice, part in _parts(frame).items():
        if metric in set(part["metric"]):
            panel.variants[choice] = Variant(boxes(part, metric, over=_over(part)), looks(part))
    return panel


def _gain_panel(metrics: list[str], frame: pd.DataFrame) -> Panel:
    caption = (
        "Each cell is one split: the value with prediction-time statistics against the one with the training "
        "statistics, signed so that positive and blue is better, negative and orange is worse, whichever way the "
        "metric points. Differences in accuracy are percentage points."
    )
    panel = Panel("gain", "Where it helps, and where it does not", caption, ("metric", "comparison", "setting"))
    for metric in metrics:
        for setting, part in settings(frame).items():
            rows = part[part["metric"] == metric]
            for method in methods(rows):
                there = strategies(rows[rows["method"] == method])
                if BASELINE not in there:
                    continue
                for strategy in there[1:]:
                    choice = (meaning(metric).label, f"{method}: {strategy} over {BASELINE}", setting)
                    panel.variants[choice] = Variant(heatmap(part, metric, method=method, strategy=strategy))
    return panel


def _reliability_panel(rel: pd.DataFrame) -> Panel:
    caption = (
        "Predictions sorted into bins by confidence; each dot is a bin, its area the share of predictions in it. On "
        "the diagonal a model is as often right as it says; below, it is over-confident. All corruptions of a "
        "severity are pooled."
    )
    panel = Panel("reliability", "Reliability", caption, ("setting", "method"))
    for choice, part in _parts(checked_reliability(rel)).items():
        panel.variants[choice] = Variant(reliability(part), looks(part))
    return panel


def panels(frame: pd.DataFrame, rel: pd.DataFrame | None = None) -> list[Panel]:
    """The figures of a report in reading order: boxes for each metric, then gains, then reliability."""
    results = checked(frame)
    metrics = ordered(results["metric"])
    found = [_box_panel(metric, results) for metric in metrics]
    found.append(_gain_panel([metric for metric in metrics if meaning(metric).better], results))
    if rel is not None and not rel.empty:
        found.append(_reliability_panel(rel))
    return [panel for panel in found if panel.variants]


def save_all(
    folder: str | Path, frame: pd.DataFrame, *, reliability: pd.DataFrame | None = None, suffix: str = ".png"
) -> list[Path]:
    """Write every figure of the report, each variant by itself, as .png, .svg, .pdf, .json or .html."""
    return save_panels(folder, panels(frame, reliability), suffix=suffix)


def save_panels(folder: str | Path, drawn: Sequence[Panel], *, suffix: str = ".png") -> list[Path]:
    """Write every variant of some figures, under names that say which figure and which choices."""
    suffix_of(Path("figure" + suffix))
    return [
        save(variant.chart, Path(folder) / (name + suffix))
        for panel in drawn
        for name, variant in zip(file_names(panel), panel.variants.values(), strict=True)
    ]


def file_names(panel: Panel) -> list[str]:
    """The names of a figure's files without their suffix, one a variant."""
    names = ("-".join([panel.name, *filter(None, choice)]) for choice in panel.variants)
    return ["".join(letter if letter.isalnum() or letter in ".=" else "-" for letter in name) for name in names]
