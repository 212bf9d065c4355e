"""Tables as Parquet files with a checksum.

Parquet can store a checksum of every page, but not of its own metadata: a flipped bit there still changes values. The
checksum of the whole file, which stands in the metadata, covers both.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from predbn.common import CHECKSUM_FIELD, EvaluationError, atomic_write, first_line, read_checked

_REMEDY = "remove it, and run the same command again"


def write_table(path: Path, table: pa.Table, *, compression: str = "snappy") -> None:
    """Write a table atomically. The same table gives the same bytes."""
    metadata = {**(table.schema.metadata or {}), "checksum": CHECKSUM_FIELD}
    with atomic_write(path, checksum=True) as partial:
        pq.write_table(table.replace_schema_metadata(metadata), partial, compression=compression)


def read_table(path: Path, schema: pa.Schema | None = None) -> pa.Table:
    """The table in a file; an EvaluationError if it is damaged or, with a `schema`, has other columns.

    A file that does not exist is a FileNotFoundError.
    """
    content = read_checked(path, error=EvaluationError, remedy=_REMEDY)
    try:
        table = pq.read_table(pa.BufferReader(content))
        table.validate(full=True)
    except Exception as error:  # a damaged file without a checksum: pyarrow raises almost anything
        raise EvaluationError(f"{path} is damaged ({_reason(error)}): {_REMEDY}.") from None
    if schema is None:
        return table
    if table.schema.names != schema.names:
        columns = ", ".join(table.schema.names)
        raise EvaluationError(f"{path} is not a table of results: it has the columns {columns}.")
    try:
        return table.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        raise EvaluationError(f"{path} is not a table of results: {_reason(error)}.") from None


def _reason(error: Exception) -> str:
    return first_line(error).removesuffix(".")
