"""From a text file to a folder of prepared rows, in one pass and in memory that does not grow with the file.

Several threads parse blocks of whole lines, and each block becomes a shard; pyarrow and numpy release the interpreter
lock. No vocabulary and no statistics are computed, so shards do not depend on each other: a preparation that was killed
continues after its last shard and ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from predbn.common import DataError, ProgressWithNote

from ..output import open_output
from .parse import parse
from .shards import SOURCE, Shard, Shards, write_shard
from .source import TextBlock, TextSource, open_source
from .synthetic import synthetic_rows

BLOCK = 1 << 24
"""Bytes of text per shard: about 70,000 rows."""

SYNTHETIC_ROWS = 1 << 16
"""Synthetic rows per shard."""

_MAX_EXAMPLES = 100
_HEAD = 1 << 20
_MIN_LINES_WITHOUT_ROW = 100
_MAX_THREADS = 16

T = TypeVar("T")


def prepare(
    path: str | Path,
    out: str | Path,
    *,
    where: Mapping[str, str] | None = None,
    threads: int | None = None,
    block: int = BLOCK,
    progress: ProgressWithNote = lambda done, total, note="": None,
) -> Shards:
    """Prepare `train.txt` or a CSV file, or continue an earlier preparation of the same file.

    where      columns of the file, and the value that a row must have there to be kept
    threads    how many threads parse; by default one per core
    block      bytes of text per shard
    progress   called with (bytes done, bytes in total), the total being None if the file is gzipped

    Lines that are not rows (wrong number of columns, a label that is neither 0 nor 1, a number that is not a 32-bit
    integer) are skipped, counted, and listed with their line number and the reason in `Shard.examples`, up to 100 per
    shard. A block of 100 or more lines without a single row stops the preparation: the file is something else.
    """
    source, where = open_source(path), dict(where or {})
    for name in where:
        if name not in source.columns:
            raise DataError(f"{source.path} has no column {name!r}: it has {', '.join(source.columns)}.")
    with open_output(Path(out), SOURCE, _identity(source, where, block)):
        shards = Shards(Path(out))
        if shards.complete:
            return shards
        total = None if source.is_gzipped else source.path.stat().st_size
        line = sum(shard.lines for shard in shards.done) + source.has_header
        begins = shards.done[-1].ends if shards.done else source.begins
        progress(begins, total)

        def work(numbered: tuple[int, TextBlock]) -> Shard:
            return _prepare_block(source, shards.folder, where, *numbered)

        blocks = enumerate(source.blocks(block, begins=begins), len(shards.done))
        for shard in _in_order(work, blocks, threads):
            shards.record(replace(shard, examples=tuple((line + number, reason) for number, reason in shard.examples)))
            line += shard.lines
            progress(shard.ends, total)
        if not sum(shard.rows for shard in shards.done):
            condition = "".join(f" with {name} {value!r}" for name, value in where.items())
            raise DataError(f"{source.path} has no row{condition}: there is nothing to prepare.")
        shards.finish()
    return shards


def prepare_synthetic(
    count: int,
    out: str | Path,
    *,
    seed: int = 0,
    threads: int | None = None,
    progress: ProgressWithNote = lambda done, total, note="": None,
) -> Shards:
    """Fill a folder with synthetic rows, which are not Criteo's, as if they had been prepared from text."""
    if count < 1:
        raise DataError(f"expected at least 1 synthetic row, but got {count}.")
    source = {"synthetic": True, "rows": count, "seed": seed, "shard": SYNTHETIC_ROWS}
    with open_output(Path(out), SOURCE, source):
        shards = Shards(Path(out))
        if shards.complete:
            return shards

        def work(number: int) -> Shard:
            begins, ends = number * SYNTHETIC_ROWS, min(count, (number + 1) * SYNTHETIC_ROWS)
            write_shard(shards.folder, number, synthetic_rows(ends - begins, seed=seed, first=begins).table)
            return Shard(ends - begins, ends - begins, ends)

        for shard in _in_order(work, iter(range(len(shards.done), -(-count // SYNTHETIC_ROWS))), threads):
            shards.record(shard)
            progress(shard.ends, count)
        shards.finish()
    return shards


def _prepare_block(source: TextSource, folder: Path, where: Mapping[str, str], number: int, block: TextBlock) -> Shard:
    """Write the rows of a block as the shard of that number. Lines are counted from the first of the block."""
    table, lines, rejected = parse(block.text, source, where)
    if not len(table) and not where and lines >= _MIN_LINES_WITHOUT_ROW:
        raise DataError(f"{source.path} has no row in the {lines} lines after byte {block.begins}.")
    write_shard(folder, number, table)
    return Shard(len(table), lines, block.ends, len(rejected), tuple(rejected[:_MAX_EXAMPLES]))


def _identity(source: TextSource, where: dict[str, str], block: int) -> dict[str, Any]:
    """What distinguishes this preparation from that of another file or with other options."""
    with source.path.open("rb") as file:
        head = hashlib.sha256(file.read(_HEAD)).hexdigest()
    contents = {"file": source.path.name, "bytes": source.path.stat().st_size, "sha256 of the first MiB": head}
    return {"synthetic": False, **contents, "where": where, "block": block}


def _in_order(work: Callable[[T], Shard], items: Iterator[T], threads: int | None) -> Iterator[Shard]:
    """work(item) for all items on threads, with the results in order.

    Items are taken only as fast as they are worked on, because blocks hold their text.
    """
    count = min(_MAX_THREADS, os.cpu_count() or 1) if threads is None else threads
    if count < 1:
        raise DataError(f"threads is {threads}, but there must be at least 1.")
    queue = deque[Future[Shard]]()
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
