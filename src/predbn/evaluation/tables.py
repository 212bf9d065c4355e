"""The tables of results: their columns, and how measured rows are turned into them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from .scoring import PREDICTED
from .units import UnitResult

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


class TableKind(NamedTuple):
    """A table of a run: its schema, and the columns that identify a row and sort the table."""

    schema: pa.Schema
    columns: tuple[str, ...]


TABLES = {
    "reliability": TableKind(RELIABILITY, (*KEYS, "bin")),
    "hits": TableKind(HITS, KEYS),
    "predictions": TableKind(PREDICTIONS, KEYS),
    "fits": TableKind(FITS, ("model", "strategy", "batch_size", "what")),
    "results": TableKind(RESULTS, (*KEYS, "metric")),
}
"""In the order in which they are written: what has results has everything else."""


def tables_of(result: UnitResult) -> dict[str, pa.Table]:
    """The tables of one unit, those without rows left out."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    rows["fits"] = [fit._asdict() for fit in result.fits]
    for row in result.rows:
        key = {**row.cell._asdict(), **row.split._asdict(), "order": row.order, "seed": row.seed}
        rows["results"] += [{**key, "metric": metric, "value": value} for metric, value in row.metrics.items()]
        for number, bin_ in enumerate(row.reliability):
            bounds = {"bin": number, "lower": bin_["low"], "upper": bin_["high"]}
            rows["reliability"].append({**key, **bounds, **{name: bin_[name] for name in _MEASURED_IN_BIN}})
        if row.hits is not None:
            rows["hits"].append({**key, "hits": row.hits})
        if row.predictions is not None:
            rows["predictions"].append({**key, **row.predictions})
    return {name: pa.Table.from_pylist(entries, TABLES[name].schema) for name, entries in rows.items() if entries}


_MEASURED_IN_BIN = ("count", "confidence", "accuracy")
