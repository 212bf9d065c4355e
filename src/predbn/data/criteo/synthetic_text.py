"""Synthetic rows as text, in the layout of Kaggle's `train.txt`: what a preparation is tested and measured on."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, BinaryIO, cast

from predbn.common import finish, part_of

from .columns import CATEGORIES, COLUMNS, MISSING_NUMBER, NUMBERS
from .synthetic import Synthetic, synthetic_rows
from .tokens import hex_words

__all__ = ["write_synthetic_text"]

_AT_ONCE = 16_384


def write_synthetic_text(path: str | Path, count: int, *, seed: int = 0) -> None:
    """Write `count` synthetic rows, tab-separated without a header, gzipped where the name ends in .gz."""
    target = Path(path)
    with part_of(target).open("wb") as file:
        if target.suffix == ".gz":
            with gzip.GzipFile("", "wb", 1, file, 0) as packed:
                _write(cast(BinaryIO, packed), count, seed)
        else:
            _write(file, count, seed)
    finish(target)


def _write(file: BinaryIO, count: int, seed: int) -> None:
    import pyarrow.csv

    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    for first in range(0, count, _AT_ONCE):
        rows = synthetic_rows(min(_AT_ONCE, count - first), seed=seed, first=first)
        pyarrow.csv.write_csv(_as_arrow(rows), file, options)


def _as_arrow(rows: Synthetic) -> Any:
    import pyarrow as pa
    import pyarrow.compute

    columns = [pa.array(rows.labels)]
    columns += [pa.array(rows.numbers[:, j], mask=rows.numbers[:, j] == MISSING_NUMBER) for j in range(len(NUMBERS))]
    for f in range(len(CATEGORIES)):
        words = hex_words(rows.categories[:, f].copy())
        present = pa.array(~rows.missing[:, f])
        digits = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(rows), [None, pa.py_buffer(words)])
        text = digits.cast(pa.binary()).cast(pa.string())
        columns.append(pa.compute.if_else(present, text, pa.scalar(None, pa.string())))
    return pa.table(columns, names=list(COLUMNS))
