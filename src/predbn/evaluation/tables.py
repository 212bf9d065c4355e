"""The tables of results: their columns, and how measured rows are turned into them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from .scoring import PREDICTED
from .units import Fit, Row

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
"""One row per metric."""

RELIABILITY = pa.schema([*_KEY_FIELDS, *_BIN_FIELDS])
"""One row per bin of confidence."""

HITS = pa.schema([*_KEY_FIELDS, pa.field("hits", pa.binary())])
"""One row per cell: which images were predicted correctly, as `Hits.pack` packs them."""

PART = pa.schema(
    [
        *_KEY_FIELDS,
        pa.field("metrics", pa.map_(pa.string(), pa.float64()), nullable=False),
        pa.field("bins", pa.list_(pa.struct(_BIN_FIELDS)), nullable=False),
        pa.field("hits", pa.binary()),
    ]
)
"""One row per cell, with its metrics, bins and hits, so that one file holds the whole result of a unit."""

PREDICTIONS = pa.schema(
    [*_KEY_FIELDS, *(pa.field(name, pa.list_(pa.from_numpy_dtype(kind))) for name, kind in PREDICTED.items())]
)
"""One row per cell: lists with one value per image, as `Predictions` describes them."""

FITS = pa.schema(
    [
        pa.field("model", pa.string(), nullable=False),
        pa.field("strategy", pa.string(), nullable=False),
        pa.field("batch_size", pa.int64(), nullable=False),
        pa.field("what", pa.string(), nullable=False),
        pa.field("value", pa.float64()),
    ]
)


def part_table(rows: Iterable[Row]) -> pa.Table:
    """The table of one unit."""
    return pa.Table.from_pylist([_part_row(row) for row in rows], PART)


def _part_row(row: Row) -> dict[str, Any]:
    bins = [
        {"bin": number, "lower": b["low"], "upper": b["high"]} | {name: b[name] for name in _MEASURED_IN_BIN}
        for number, b in enumerate(row.reliability)
    ]
    return {**_key(row), "metrics": list(row.metrics.items()), "bins": bins, "hits": row.hits}


def predictions_table(rows: Iterable[Row]) -> pa.Table:
    """The predictions of one unit; without rows if none were kept."""
    kept = [{**_key(row), **row.predictions} for row in rows if row.predictions is not None]
    return pa.Table.from_pylist(kept, PREDICTIONS)


def _key(row: Row) -> dict[str, Any]:
    return {**row.cell._asdict(), **row.split._asdict(), "order": row.order, "seed": row.seed}


_MEASURED_IN_BIN = ("count", "confidence", "accuracy")


def tidy_tables(part: pa.Table) -> dict[str, pa.Table]:
    """The tables `results`, `reliability` and `hits` of a part."""
    results, bins, hits = [], [], []
    for row in part.to_pylist():
        key = {name: row[name] for name in KEYS}
        results += [{**key, "metric": metric, "value": value} for metric, value in row["metrics"]]
        bins += [{**key, **values} for values in row["bins"]]
        if row["hits"] is not None:
            hits.append({**key, "hits": row["hits"]})
    return {
        "results": pa.Table.from_pylist(results, RESULTS),
        "reliability": pa.Table.from_pylist(bins, RELIABILITY),
        "hits": pa.Table.from_pylist(hits, HITS),
    }


def fits_table(fits: Iterable[Fit]) -> pa.Table:
    """Fits as a table."""
    return pa.Table.from_pylist([fit._asdict() for fit in fits], FITS)
