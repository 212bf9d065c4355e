"""The numbers behind the figures as tables that a reader can sort."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import pandas as pd

from .frames import CLEAN, averaged, families, of_metric, readable, series_of
from .meanings import meaning, ordered

__all__ = ["by_severity", "by_split", "sortable", "table_html"]


def by_split(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per (series, corruption, severity), a column for each metric; means over models and seeds."""
    keys = ["series", "corruption", "severity"]
    columns = {
        metric: averaged(of_metric(frame, metric)).set_index(keys)["value"] for metric in ordered(frame["metric"])
    }
    table = pd.DataFrame(columns).reset_index()
    corruptions = [CLEAN, *(name for members in families(list(table["corruption"])).values() for name in members)]
    series = list(series_of(frame)["series"])
    place = table.assign(
        series=table["series"].map(series.index), corruption=table["corruption"].map(corruptions.index)
    ).sort_values(["corruption", "severity", "series"])
    in_order: pd.DataFrame = table.loc[place.index]
    return in_order


def by_severity(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per (series, severity), a column for each metric; means over the corruptions."""
    table = by_split(frame)
    series = list(series_of(frame)["series"])
    means = table.drop(columns="corruption").groupby(["series", "severity"], as_index=False).mean()
    place = means["series"].map(series.index)
    in_order: pd.DataFrame = means.assign(place=place).sort_values(["place", "severity"]).drop(columns="place")
    return in_order


def table_html(table: pd.DataFrame, caption: str) -> str:
    """A table of metrics; these are right-aligned, in one unit a column."""
    columns = []
    for name in table.columns:
        head, texts = _column(str(name), table[name].tolist())
        columns.append((head, texts, name not in ("series", "corruption")))
    return sortable(columns, caption)


def sortable(columns: Sequence[tuple[str, Sequence[str], bool]], caption: str) -> str:
    """A table whose headings are buttons, from (heading, texts, whether they are numbers) a column."""
    heads, cells = [], []
    for head, texts, is_number in columns:
        kind = ' class="number"' if is_number else ""
        heads.append(f'<th scope="col" aria-sort="none"{kind}><button type="button">{escape(head)}</button></th>')
        cells.append([f"<td{kind}>{escape(cell)}</td>" for cell in texts])
    rows = "\n".join("<tr>" + "".join(row) + "</tr>" for row in zip(*cells, strict=True))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="sortable">'
        f"<caption>{escape(caption)}</caption><thead><tr>{''.join(heads)}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"
    )


def _column(name: str, values: Sequence[object]) -> tuple[str, list[str]]:
    if name in ("series", "corruption", "severity"):
        return name, [readable(str(value)) for value in values]
    known = meaning(name)
    unit = ", %" if known.percent else ""
    return known.label + unit, [known.number(float(str(value))) for value in values]
