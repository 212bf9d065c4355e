"""The page of an examination: what was found, what to do, and how well the stored statistics fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from predbn.diagnostics import Examination

from .figure import Figure, FigureVariant
from .figures import channels_of_layer, data_styles, fit_by_layer, shift_by_layer
from .save import write_file
from .tables import Column, Table
from .templates import render_page

TITLE = "Examination of batch norm statistics"
MAX_LAYERS = 6

_FIT_CAPTION = (
    "From the first layer that is called to the last: how far the stored statistics are from those of the data, as "
    "root mean square over the channels. Healthy networks stay within the grey bar; their stored statistics are "
    "those of augmented training images. An error in one layer does not spread to the next."
)
_SHIFT_CAPTION = (
    "How far the statistics of the data are from those of the reference, as the model predicts both; with the "
    "statistics of the batch, if the stored ones are wrong. Beyond its grey bar, three times what chance typically "
    "gives and at least 0.05, a layer sees other data."
)
_CHANNELS_CAPTION = (
    "The channels of the layers that fit least. The statistics fit where the lines cross. All channels wider than "
    "stored: the statistics come from small batches; scattered: from other weights; moved together: from other data."
)


def write_examination(
    path: str | Path, examination: Examination, card: Mapping[str, Any] | None = None, *, title: str | None = None
) -> Path:
    """Write an examination atomically as one self-contained HTML file."""
    page = render_page(
        "examination.html",
        title or TITLE,
        _figures(examination),
        chosen="",
        verdict=examination.verdict,
        findings=examination.findings,
        facts=_facts(examination, card or {}),
        strategies=[],
        tables=_tables(examination),
        card=card or {},
    )
    return write_file(Path(path), page)


def _facts(examination: Examination, card: Mapping[str, Any]) -> list[str]:
    model = str(card.get("model") or "")
    counts = [f"{count:,} examples of the {name}" for name, count in examination.examples.items()]
    return [*filter(None, (model,)), f"{examination.layer_count} batch norm layers", *(counts or ["no data"])]


def _figures(examination: Examination) -> list[Figure]:
    measured = [row for row in examination.layers if row.reference is not None or row.data is not None]
    if not measured:
        return []
    styles = data_styles(examination)
    fit = FigureVariant(fit_by_layer(examination), styles)
    figures = [Figure("fit", "How well the stored statistics fit", _FIT_CAPTION, (), {(): fit})]
    if any(row.shift is not None for row in measured):
        shift = FigureVariant(shift_by_layer(examination), styles[1:])
        figures.append(Figure("shift", "How far the data has shifted", _SHIFT_CAPTION, (), {(): shift}))
    worst = sorted(measured, key=lambda row: -max(row.reference or 0, row.data or 0))[:MAX_LAYERS]
    by_layer: dict[tuple[str, ...], FigureVariant] = {
        (row.layer,): FigureVariant(channels_of_layer(examination, row.layer), styles) for row in worst
    }
    return [*figures, Figure("channels", "Channel by channel", _CHANNELS_CAPTION, ("layer",), by_layer)]


def _tables(examination: Examination) -> list[Table]:
    rows = examination.layers
    columns = [
        Column("layer", [row.layer for row in rows]),
        _numbers("depth", [row.depth for row in rows], "d"),
        _numbers("channels", [row.channels for row in rows], "d"),
    ]
    headings = {"reference": "reference", "data": "data", "shift": "shift"}
    for name, heading in headings.items():
        if any(getattr(row, name) is not None for row in rows):
            columns.append(_numbers(heading, [getattr(row, name) for row in rows]))
            columns.append(_numbers(f"{heading}, by chance", [getattr(row, f"{name}_chance") for row in rows]))
    tables = [Table("Every layer", columns)]
    predictions = {name: numbers for name, numbers in examination.predictions.items() if numbers}
    if predictions:
        tables.append(
            Table(
                "Predictions with stored and with recomputed statistics",
                [
                    Column("measured on", list(predictions)),
                    _numbers("same class, %", [100 * row["agreement"] for row in predictions.values()], ".1f"),
                    _numbers("information, stored", [row["information_stored"] for row in predictions.values()]),
                    _numbers("recomputed", [row["information_recomputed"] for row in predictions.values()]),
                    _numbers("standard error", [row["gain_error"] for row in predictions.values()]),
                ],
            )
        )
    return tables


def _numbers(heading: str, values: Sequence[float | None], form: str = ".3f") -> Column:
    """A column of numbers, some of which may not be known."""
    cells = ["–" if value is None else format(value, form) for value in values]
    return Column(heading, cells, [math.nan if value is None else float(value) for value in values])
