"""The page of a diagnosis: has the data shifted, in which layers, does the strategy bring it back?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from predbn.diagnostics import Diagnosis, is_shifted

from .card import card_html
from .figures.channels import channels
from .figures.confidence import confidence
from .figures.depth import depth, depth_looks
from .figures.spectra import spectra
from .panels import Panel, Variant
from .save import store
from .shell import assemble, asset
from .sides import sides
from .tables import sortable

__all__ = ["write_diagnosis"]

TITLE = "Diagnosis of a shift"
LAYERS = 6


def write_diagnosis(
    path: str | Path, diagnosis: Diagnosis, card: Mapping[str, Any] | None = None, *, title: str | None = None
) -> Path:
    """Write a diagnosis as one self-contained HTML file, whole or not at all."""
    sections = Template(asset("diagnosis.html")).substitute(table=_table(diagnosis), card=card_html(card or {}))
    page = assemble(
        title=title or TITLE,
        findings=diagnosis.sentences(),
        facts=_facts(diagnosis, card or {}),
        note=_note(diagnosis),
        panels=_panels(diagnosis),
        sections=sections,
    )
    return store(Path(path), page)


def _facts(diagnosis: Diagnosis, card: Mapping[str, Any]) -> list[str]:
    data = " ".join(str(card[key]) for key in ("data", "corruption", "severity") if card.get(key))
    return [
        *(fact for fact in (str(card.get("model") or ""), data) if fact),
        f"{diagnosis.before.count:,} examples against {diagnosis.reference.count:,} of the reference",
        f"strategy {diagnosis.strategy}, batches of {diagnosis.batch_size}",
    ]


def _note(diagnosis: Diagnosis) -> str:
    hollow = " Hollow dots and dashed lines are the reference." if diagnosis.after is not None else ""
    return (
        "<code>train</code> is the model with the statistics stored in training. Nothing here needs labels, and so "
        f"nothing says whether the predictions are right.{hollow}"
    )


def _panels(diagnosis: Diagnosis) -> list[Panel]:
    far = Panel(
        "depth",
        "How far each layer moved",
        "From the first layer to the last: how far the values of a channel went, on average over the channels "
        "(1-Wasserstein distance). A layer counts as shifted beyond its grey bar: three times what chance would give, "
        "and at least a tenth of a standard deviation.",
        (),
        {(): Variant(depth(diagnosis), depth_looks(diagnosis))},
    )
    looks = [look for look, _ in sides(diagnosis)]
    caption = (
        "The channels that moved most in the layers that moved most, and in embeddings and logits: spatial means, "
        "before the non-linearity. What went beyond an axis is drawn at its end."
    )
    close = Panel("channels", "What the channels give", caption, ("layer",))
    for layer in _most_shifted(diagnosis):
        close.variants[(layer,)] = Variant(channels(diagnosis, layer), looks)
    found = [far, close]
    if diagnosis.reference.logits is not None:
        shape = (
            "The variances along the principal axes of embeddings and logits: how close the distributions are in "
            "shape, wherever they lie."
        )
        sure = (
            "The probability that the model gives its own prediction. A model that is as sure of shifted data as of "
            "the reference is seldom right to be."
        )
        found += [
            Panel("spectra", "Spectra", shape, (), {(): Variant(spectra(diagnosis), looks)}),
            Panel("confidence", "Confidence", sure, (), {(): Variant(confidence(diagnosis), looks)}),
        ]
    return found


def _most_shifted(diagnosis: Diagnosis) -> list[str]:
    layers = sorted(diagnosis.of("train", kind="batch norm"), key=lambda row: -row.distance)[:LAYERS]
    others = [row for row in diagnosis.of("train") if row.kind != "batch norm"]
    return [row.layer for row in (*layers, *others)]


def _table(diagnosis: Diagnosis) -> str:
    """A row per layer and strategy on the shifted data, in the order of the calls."""
    rows = [row for row in diagnosis.shifts if row.data == "shifted"]
    columns = [
        ("layer", [row.layer for row in rows], False),
        ("channels", [str(row.channels) for row in rows], True),
        ("strategy", [row.strategy for row in rows], False),
        ("distance", [f"{row.distance:.3f}" for row in rows], True),
        ("apart", [f"{row.apart:.3f}" for row in rows], True),
        ("by chance", [f"{row.noise:.3f}" for row in rows], True),
        ("outside, %", [f"{100 * row.outside:.1f}" for row in rows], True),
        ("divergence", [f"{row.divergence:.2f}" for row in rows], True),
        ("shifted", ["yes" if is_shifted(row) else "no" for row in rows], False),
    ]
    return sortable(columns, "Every layer on the shifted data")
