"""From a text file to a folder of prepared rows, in one pass and in memory that does not grow with the file.

Several threads parse blocks of whole lines; pyarrow and numpy release the interpreter lock. No vocabulary and no
statistics are computed. The whole file takes a minute or two, so a preparation that was killed starts again.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from predbn.common import DataError, ProgressWithNote

from ..output import open_output
from .files import SOURCE, Prepared, load_rows, read_prepared, write_prepared, write_rows
from .parse import Parsed, parse
from .source import TextBlock, TextSource, open_source
from .synthetic import synthetic_rows

BLOCK = 1 << 22
"""Bytes of text that are parsed at once: about 17,000 rows."""

_SYNTHETIC_ROWS = 1 << 16
_MAX_EXAMPLES = 100
_HEAD = 1 << 20
_MIN_LINES_WITHOUT_ROW = 100
_MAX_THREADS = 16

T = TypeVar("T")
R = TypeVar("R")


def prepare(
    path: str | Path,
    out: str | Path,
    *,
    where: Mapping[str, str] | None = None,
    threads: int | None = None,
    block: int = BLOCK,
    progress: ProgressWithNote = lambda done, total, note="": None,
) -> Prepared:
    """Prepare `train.txt` or a CSV file. A folder that holds the rows already is not changed.

    where      columns of the file, and the value that a row must have there to be kept
    threads    how many threads parse; by default one per core
    block      bytes of text that are parsed at once
    progress   called with (bytes done, bytes in total), the total being None if the file is gzipped

    Lines that are not rows (wrong number of columns, a label that is neither 0 nor 1, a number that is not a 32-bit
    integer) are skipped, counted, and the first 100 listed with their line number and the reason in
    `Prepared.examples`. A block of 100 or more lines without a single row stops the preparation: the file is something
    else.
    """
    source, out, where = open_source(path), Path(out), dict(where or {})
    for name in where:
        if name not in source.columns:
            raise DataError(f"{source.path} has no column {name!r}: it has {', '.join(source.columns)}.")
    with open_output(out, SOURCE, _identity(source, where)):
        if prepared := _find_prepared(out):
            return prepared
        total = None if source.is_gzipped else source.path.stat().st_size
        lines, rejected, examples = 0, 0, list[tuple[int, str]]()

        def work(block: TextBlock) -> tuple[int, Parsed]:
            parsed = parse(block.text, source, where)
            if not len(parsed.table) and not where and parsed.lines >= _MIN_LINES_WITHOUT_ROW:
                raise DataError(f"{source.path} has no row in the {parsed.lines} lines after byte {block.begins}.")
            return block.ends, parsed

        def tables() -> Iterator[npt.NDArray[np.int32]]:
            nonlocal lines, rejected
            progress(source.begins, total)
            for ends, parsed in _in_order(work, source.blocks(block), threads):
                for line, reason in parsed.rejected[: _MAX_EXAMPLES - len(examples)]:
                    examples.append((source.has_header + lines + line, reason))
                lines += parsed.lines
                rejected += len(parsed.rejected)
                yield parsed.table
                progress(ends, total)

        rows = write_rows(out, tables())
        if not rows:
            condition = "".join(f" with {name} {value!r}" for name, value in where.items())
            raise DataError(f"{source.path} has no row{condition}: there is nothing to prepare.")
        prepared = Prepared(False, rows, lines, rejected, tuple(examples))
        write_prepared(out, prepared)
    return prepared


def prepare_synthetic(
    count: int,
    out: str | Path,
    *,
    seed: int = 0,
    threads: int | None = None,
    progress: ProgressWithNote = lambda done, total, note="": None,
) -> Prepared:
    """Fill a folder with synthetic rows, which are not Criteo's, as if they had been prepared from text."""
    if count < 1:
        raise DataError(f"expected at least 1 synthetic row, but got {count}.")
    out = Path(out)
    with open_output(out, SOURCE, {"synthetic": True, "rows": count, "seed": seed}):
        if prepared := _find_prepared(out):
            return prepared

        def work(first: int) -> npt.NDArray[np.int32]:
            return synthetic_rows(min(_SYNTHETIC_ROWS, count - first), seed=seed, first=first).table

        def tables() -> Iterator[npt.NDArray[np.int32]]:
            done = 0
            for table in _in_order(work, iter(range(0, count, _SYNTHETIC_ROWS)), threads):
                yield table
                done += len(table)
                progress(done, count)

        write_rows(out, tables())
        prepared = Prepared(True, count, count)
        write_prepared(out, prepared)
    return prepared


def _find_prepared(folder: Path) -> Prepared | None:
    """What a folder holds if it is completely prepared and not damaged."""
    try:
        prepared = read_prepared(folder)
        load_rows(folder, prepared)
    except DataError:
        return None
    return prepared


def _identity(source: TextSource, where: dict[str, str]) -> dict[str, Any]:
    """What distinguishes this preparation from that of another file or with other conditions."""
    with source.path.open("rb") as file:
        head = hashlib.sha256(file.read(_HEAD)).hexdigest()
    contents = {"file": source.path.name, "bytes": source.path.stat().st_size, "sha256 of the first MiB": head}
    return {"synthetic": False, **contents, "where": where}


def _in_order(work: Callable[[T], R], items: Iterator[T], threads: int | None) -> Iterator[R]:
    """work(item) for all items on threads, with the results in order.

    Items are taken only as fast as they are worked on, because blocks hold their text.
    """
    count = min(_MAX_THREADS, os.cpu_count() or 1) if threads is None else threads
    if count < 1:
        raise DataError(f"threads is {threads}, but there must be at least 1.")
    queue = deque[Future[R]]()
    with ThreadPoolExecutor(count, "predbn-criteo") as pool:
        try:
            for item in items:
                queue.append(pool.submit(work, item))
                if len(queue) > count:
                    yield queue.popleft().result()
            while queue:
                yield queue.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
