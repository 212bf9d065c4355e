"""The page of an examination: the findings, what to do, how well the stored statistics fit, where data shifted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from predbn.diagnostics import Examination

from .figure import Figure, FigureVariant
from .figures import channels_of_layer, fit_by_layer, shift_by_layer
from .save import write_file
from .tables import Column, Table, Width
from .templates import render_page

TITLE = "Examination of batch norm statistics"
MAX_LAYERS = 6

_FIT_CAPTION = (
    "From the first layer that is called to the last: how far the stored statistics are from those of the reference, "
    "as root mean square over the channels. Healthy networks stay within the grey bar; their stored statistics are "
    "those of augmented training images. An error in one layer does not spread to the next."
)
_SHIFT_CAPTION = (
    "How far the statistics of the data are from those of the reference. Beyond its grey bar, three times the sampling "
    "noise and at least 0.05, a layer has shifted. If the stored statistics are wrong, those of the batch "
    "are used."
)
_CHANNELS_CAPTION = (
    "The channels of the layers that are furthest off. The statistics fit where the lines cross. All channels wider "
    "than stored: the statistics come from small batches; scattered: from other weights; moved together: from other "
    "data."
)


def write_examination(path: str | Path, examination: Examination, card: Mapping[str, Any] | None = None) -> Path:
    """Write an examination atomically as one self-contained HTML file."""
    page = render_page(
        "examination.html",
        TITLE,
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
    shift = " ".join(str(card[key]) for key in ("corruption", "severity") if card.get(key))
    counts = [f"{count:,} examples of the {name}" for name, count in examination.examples.items()]
    facts = [model, f"{examination.layer_count} batch norm layers", *(counts or ["no data"]), shift]
    return [fact for fact in facts if fact]


def _figures(examination: Examination) -> list[Figure]:
    if not examination.channels:
        return []
    figures = [Figure("fit", "How well the stored statistics fit", _FIT_CAPTION, (), {(): fit_by_layer(examination)})]
    if "data" in examination.examples:
        shift = shift_by_layer(examination)
        figures.append(Figure("shift", "How far the data has shifted", _SHIFT_CAPTION, (), {(): shift}))
    measured = [row for row in examination.layers if row.layer in examination.channels]
    worst = sorted(measured, key=lambda row: -max(row.fit or 0, row.shift or 0))[:MAX_LAYERS]
    by_layer: dict[tuple[str, ...], FigureVariant] = {
        (row.layer,): channels_of_layer(examination, row.layer) for row in worst
    }
    return [*figures, Figure("channels", "Channel by channel", _CHANNELS_CAPTION, ("layer",), by_layer)]


def _tables(examination: Examination) -> list[Table]:
    rows = examination.layers
    columns = [
        Column("layer", [row.layer for row in rows]),
        _numbers("channels", [row.channels for row in rows], "d", shown="full"),
        _numbers("fit", [row.fit for row in rows]),
        _numbers("noise", [row.fit_noise for row in rows], shown="wide"),
        _numbers("shift", [row.shift for row in rows]),
        _numbers("noise of shift", [row.shift_noise for row in rows], shown="wide"),
        _numbers("with batch statistics", [row.shift_recomputed for row in rows], shown="wide"),
    ]
    tables = [Table("Every layer", [column for column in columns if not _is_empty(column)])]
    predictions = {name: numbers for name, numbers in examination.predictions.items() if numbers}
    if predictions:
        sides = list(predictions.values())
        columns = [
            Column("measured on", list(predictions)),
            _numbers("same class, %", [100 * row["agreement"] for row in sides], ".1f"),
            _numbers("information, stored", [row["information_stored"] for row in sides]),
            _numbers("recomputed", [row["information_recomputed"] for row in sides]),
            _numbers("standard error", [row["gain_error"] for row in sides], shown="full"),
            _numbers("confidence, stored, %", [100 * row["confidence_stored"] for row in sides], ".1f", shown="full"),
            _numbers("recomputed, %", [100 * row["confidence_recomputed"] for row in sides], ".1f", shown="full"),
        ]
        tables.append(Table("Predictions with stored and with recomputed statistics", columns))
    return tables


def _is_empty(column: Column) -> bool:
    return column.is_number and all(math.isnan(value) for value in column.values or ())


def _numbers(heading: str, values: Sequence[float | None], form: str = ".3f", *, shown: Width = "any") -> Column:
    """A column of numbers, some of which may be unknown."""
    cells = ["–" if value is None else format(value, form) for value in values]
    numbers = [math.nan if value is None else float(value) for value in values]
    return Column(heading, cells, numbers, shown=shown)
