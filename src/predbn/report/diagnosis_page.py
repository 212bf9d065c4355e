"""The page of a diagnosis: has the data shifted, in which layers, and does the strategy correct it?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from predbn.diagnostics import Diagnosis, has_shifted

from .figure import Figure, FigureVariant
from .figures import channels, confidence, depth, spectra
from .figures.diagnosis import depth_styles, profile_styles
from .save import write_file
from .strategy_info import strategy_label, strategy_sentences
from .tables import Column, Table, Width
from .templates import render_page

TITLE = "Diagnosis of a shift"
MAX_LAYERS = 6

_DEPTH_CAPTION = (
    "From the first layer to the last: how far the values of a channel moved, on average over the channels "
    "(1-Wasserstein distance). A layer counts as shifted beyond its grey bar: three times what chance would give, "
    "and at least a tenth of a standard deviation."
)
_CHANNELS_CAPTION = (
    "The channels that moved most in the layers that moved most, and in embeddings and logits: spatial means, "
    "before the non-linearity. What went beyond an axis is drawn at its end."
)
_SPECTRA_CAPTION = (
    "The variances along the principal axes of embeddings and logits: how close the distributions are in "
    "shape, wherever they lie."
)
_CONFIDENCE_CAPTION = (
    "The probability that the model gives its own prediction. A model that is as confident on shifted data as on the "
    "reference is usually over-confident."
)


def write_diagnosis(
    path: str | Path, diagnosis: Diagnosis, card: Mapping[str, Any] | None = None, *, title: str | None = None
) -> Path:
    """Write a diagnosis atomically as one self-contained HTML file."""
    page = render_page(
        "diagnosis.html",
        title or TITLE,
        _figures(diagnosis),
        chosen="",
        findings=diagnosis.sentences(),
        facts=_facts(diagnosis, card or {}),
        is_adapted=diagnosis.after is not None,
        strategies=strategy_sentences([diagnosis.strategy]),
        table=_table(diagnosis),
        card=card or {},
    )
    return write_file(Path(path), page)


def _facts(diagnosis: Diagnosis, card: Mapping[str, Any]) -> list[str]:
    model = str(card.get("model") or "")
    data = " ".join(str(card[key]) for key in ("data", "corruption", "severity") if card.get(key))
    return [
        *filter(None, (model, data)),
        f"{diagnosis.before.count:,} examples against {diagnosis.reference.count:,} of the reference",
        f"strategy {strategy_label(diagnosis.strategy)}, batches of {diagnosis.batch_size}",
    ]


def _figures(diagnosis: Diagnosis) -> list[Figure]:
    styles = profile_styles(diagnosis)
    depth_variant = FigureVariant(depth(diagnosis), depth_styles(diagnosis))
    by_layer: dict[tuple[str, ...], FigureVariant] = {
        (layer,): FigureVariant(channels(diagnosis, layer), styles) for layer in _most_shifted(diagnosis)
    }
    figures = [
        Figure("depth", "How far each layer moved", _DEPTH_CAPTION, (), {(): depth_variant}),
        Figure("channels", "Distributions of single channels", _CHANNELS_CAPTION, ("layer",), by_layer),
    ]
    if diagnosis.reference.logits is not None:
        spectra_variant = FigureVariant(spectra(diagnosis), styles)
        confidence_variant = FigureVariant(confidence(diagnosis), styles)
        figures += [
            Figure("spectra", "Spectra", _SPECTRA_CAPTION, (), {(): spectra_variant}),
            Figure("confidence", "Confidence", _CONFIDENCE_CAPTION, (), {(): confidence_variant}),
        ]
    return figures


def _most_shifted(diagnosis: Diagnosis) -> list[str]:
    """The batch norm layers that moved most, then embeddings and logits."""
    layers = sorted(diagnosis.of("train", kind="batch norm"), key=lambda row: -row.distance)[:MAX_LAYERS]
    others = [row for row in diagnosis.of("train") if row.kind != "batch norm"]
    return [row.layer for row in (*layers, *others)]


def _table(diagnosis: Diagnosis) -> Table:
    """One row per layer and strategy on the shifted data, in the order of the calls."""
    rows = [row for row in diagnosis.shifts if row.data == "shifted"]

    def numbers(heading: str, values: list[float], form: str, shown: Width = "wide") -> Column:
        return Column(heading, [format(value, form) for value in values], values, shown=shown)

    columns = [
        Column("layer", [row.layer for row in rows]),
        Column("strategy", [strategy_label(row.strategy) for row in rows]),
        Column("shifted", ["yes" if has_shifted(row) else "no" for row in rows]),
        numbers("distance", [row.distance for row in rows], ".3f", shown="any"),
        numbers("by chance", [row.noise for row in rows], ".3f"),
        numbers("apart", [row.apart for row in rows], ".3f"),
        numbers("outside, %", [100 * row.outside for row in rows], ".1f"),
        numbers("divergence", [row.divergence for row in rows], ".2f", shown="full"),
        numbers("channels", [row.channels for row in rows], "d", shown="full"),
    ]
    return Table("Every layer on the shifted data", columns)
