"""The tables of results: their columns, and how measured rows become them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from .units import Cell, Fit, Row

__all__ = ["FITS", "HITS", "KEYS", "PART", "RELIABILITY", "RESULTS", "part_of_rows", "tidy"]

KEYS = ("model", "method", "strategy", "corruption", "severity", "batch_size", "order", "seed")

_KEY_FIELDS = [
    pa.field(name, pa.int64() if name in ("severity", "batch_size", "seed") else pa.string(), nullable=False)
    for name in KEYS
]
_BIN_FIELDS = [
    pa.field("bin", pa.int64()),
    pa.field("lower", pa.float64()),
    pa.field("upper", pa.float64()),
    pa.field("count", pa.int64()),
    pa.field("confidence", pa.float64()),
    pa.field("accuracy", pa.float64()),
]

RESULTS = pa.schema([*_KEY_FIELDS, pa.field("metric", pa.string()), pa.field("value", pa.float64())])
"""One row a metric."""

RELIABILITY = pa.schema([*_KEY_FIELDS, *_BIN_FIELDS])
"""One row a bin of confidence."""

HITS = pa.schema([*_KEY_FIELDS, pa.field("hits", pa.binary())])
"""One row a cell: which images were right, as `hits` packs them."""

PART = pa.schema(
    [
        *_KEY_FIELDS,
        pa.field("metrics", pa.map_(pa.string(), pa.float64())),
        pa.field("bins", pa.list_(pa.struct(_BIN_FIELDS))),
        pa.field("hits", pa.binary()),
    ]
)
"""One row a cell, with its metrics, its bins and its hits, so that one file holds all that a unit came to."""

FITS = pa.schema(
    [
        pa.field("model", pa.string()),
        pa.field("strategy", pa.string()),
        pa.field("batch_size", pa.int64()),
        pa.field("what", pa.string()),
        pa.field("value", pa.float64()),
    ]
)


def part_of_rows(rows: Iterable[Row]) -> pa.Table:
    """The table of one unit."""
    return pa.Table.from_pylist([_wide(row) for row in rows], PART)


def _wide(row: Row) -> dict[str, Any]:
    bins = [
        {"bin": number, "lower": each["low"], "upper": each["high"], **_measured(each)}
        for number, each in enumerate(row.reliability)
    ]
    key = _key(row.cell) | {**row.split._asdict(), "order": row.order, "seed": row.seed}
    return key | {"metrics": list(row.metrics.items()), "bins": bins, "hits": row.hits}


def _key(cell: Cell) -> dict[str, Any]:
    return cell._asdict()


def _measured(each: dict[str, Any]) -> dict[str, Any]:
    return {name: each[name] for name in ("count", "confidence", "accuracy")}


def tidy(part: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The rows of a part by metric and by bin, and the hits."""
    results, bins, hits = [], [], []
    for row in part.to_pylist():
        key = {name: row[name] for name in KEYS}
        results += [{**key, "metric": metric, "value": value} for metric, value in row["metrics"]]
        bins += [{**key, **each} for each in row["bins"]]
        if row["hits"] is not None:
            hits.append({**key, "hits": row["hits"]})
    listed = ((results, RESULTS), (bins, RELIABILITY), (hits, HITS))
    by_metric, by_bin, by_cell = (pa.Table.from_pylist(rows, schema) for rows, schema in listed)
    return by_metric, by_bin, by_cell


def fits_table(fits: Iterable[Fit]) -> pa.Table:
    """Fits as a table."""
    return pa.Table.from_pylist([fit._asdict() for fit in fits], FITS)
