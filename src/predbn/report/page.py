"""The report of a run: what was found, figures, tables, run card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from .card import card_html, find
from .frames import CLEAN, KEYS, checked, main_setting, settings
from .headline import headline
from .looks import looks
from .panels import panels
from .save import store
from .shell import assemble, asset
from .tables import by_severity, by_split, table_html

__all__ = ["write"]

TITLE = "Prediction-time batch normalisation under shift"


def write(
    path: str | Path,
    frame: pd.DataFrame,
    card: Mapping[str, Any],
    *,
    reliability: pd.DataFrame | None = None,
    title: str | None = None,
) -> Path:
    """Write the report of a run as one self-contained HTML file, whole or not at all."""
    results = checked(frame)
    drawn = panels(frame, reliability)
    found, chosen = headline(frame), main_setting(settings(results))
    sections = Template(asset("results.html")).substitute(
        summary=_tables(results, "severity"),
        splits=_tables(results, "split"),
        split_count=f"{sum(len(by_split(part)) for part in settings(results).values()):,}",
        card=card_html(card),
    )
    page = assemble(
        title=title or TITLE,
        findings=found,
        facts=_facts(results, card, reliability),
        note=_note(results),
        panels=drawn,
        sections=sections,
        chosen=chosen,
    )
    return store(Path(path), page)


def _facts(results: pd.DataFrame, card: Mapping[str, Any], rel: pd.DataFrame | None) -> list[str]:
    """What the results rest on, in a line."""
    shifted = results[results["corruption"] != CLEAN]
    sizes = sorted(set(results["batch_size"]))
    corruptions, severities = shifted["corruption"].nunique(), shifted["severity"].nunique()
    models = sorted(set(results["model"]))
    images = _images(card, rel)
    return [
        *([f"{images:,} images a split"] if images else []),
        *(
            [f"{_count(corruptions, 'corruption')} × {_count(severities, 'severity', 'severities')}"]
            if corruptions
            else []
        ),
        f"batch size {', '.join(map(str, sizes))}",
        models[0] if len(models) == 1 else f"{len(models)} models",
    ]


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _images(card: Mapping[str, Any], rel: pd.DataFrame | None) -> int | None:
    """How many images a split has: counted in the reliability bins, or else as the run card has it."""
    if rel is not None and not rel.empty:
        return int(rel.groupby(list(KEYS))["count"].sum().max())
    stated = find(card, "images")
    return stated if isinstance(stated, int) else None


def _note(results: pd.DataFrame) -> str:
    """How to read the box plots."""
    hollow = any(look.baseline for look in looks(results))
    baseline = " Hollow boxes and dashed lines are the <code>train</code> baseline." if hollow else ""
    return (
        "In the box plots a box holds the middle half of the corruptions, its line is the median, and its whiskers "
        f"reach from the lowest to the highest.{baseline} Point at a dot to follow one corruption."
    )


def _tables(results: pd.DataFrame, by: str) -> str:
    tables = []
    for setting, part in settings(results).items():
        where = f", {setting}" if setting else ""
        if by == "severity":
            tables.append(table_html(by_severity(part), f"Means over the corruptions{where}"))
        else:
            tables.append(table_html(by_split(part), f"Every split{where}"))
    return "\n".join(tables)
