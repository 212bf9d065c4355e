"""From a text file to a folder of prepared rows, in one pass and in memory that does not grow with the file.

Several processes parse blocks of whole lines, and each block becomes a shard. No vocabulary and no statistics are
computed, so shards do not depend on each other: a preparation that was killed continues after its last shard and
ends with the same bytes.

Processes rather than threads, because parsing consists of many short calls, between which threads would wait for each
other. On Linux the processes are forked, because a new interpreter needs seconds to import torch; they use only numpy,
pyarrow and files. A worker ends with its parent, even if that is killed: otherwise it would wait for work forever and
keep its copy of the lock on the folder.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from predbn.common import DataError, ProgressWithNote, process_pool

from ..output import open_output
from .parse import parse
from .shards import SOURCE, Shard, Shards, write_shard
from .source import TextBlock, TextSource, open_source
from .synthetic import synthetic_rows

BLOCK = 1 << 24
"""Bytes of text per shard: about 70,000 rows."""

SYNTHETIC_ROWS = 1 << 16
"""Synthetic rows per shard."""

_MOST_EXAMPLES = 100
_HEAD = 1 << 20
_LINES_WITHOUT_ROW = 100
_MOST_WORKERS = 16

T = TypeVar("T")


def prepare(
    path: str | Path,
    out: str | Path,
    *,
    where: Mapping[str, str] | None = None,
    processes: int | None = None,
    block: int = BLOCK,
    progress: ProgressWithNote = lambda done, total, note="": None,
) -> Shards:
    """Prepare `train.txt` or a CSV file, or continue an earlier preparation of the same file.

    where      additional columns of a CSV file, and the value that a row must have there to be kept
    processes  how many processes parse; by default one more than cores, because some wait for the disk
    block      bytes of text per shard
    progress   called with (bytes done, bytes in total), the total being None if the file is gzipped

    Lines that are not rows (wrong number of columns, a label that is neither 0 nor 1, a number that is not a whole
    number) are skipped, counted, and listed with their line number and the reason in `Shard.examples`, up to 100 per
    shard. A block of 100 or more lines without a single row stops the preparation: the file is something else.
    """
    source = open_source(path)
    where = dict(where or {})
    for name in where:
        if name not in source.columns:
            raise DataError(f"{source.path} has no column {name!r}: it has {', '.join(source.columns)}.")
    workers = _workers("processes", processes)
    with open_output(Path(out), SOURCE, _identity(source, where, block)):
        shards = Shards(Path(out))
        shards.drop_damaged()
        if not shards.complete:
            _prepare_blocks(source, shards, where, workers, block, progress)
    return shards


def _prepare_blocks(
    source: TextSource, shards: Shards, where: Mapping[str, str], workers: int, block: int, progress: ProgressWithNote
) -> None:
    total = None if source.is_gzipped else source.path.stat().st_size
    begins = shards.done[-1].ends if shards.done else source.begins
    blocks = enumerate(source.blocks(block, begins=begins), len(shards.done))
    work = partial(_prepare_block, source, shards.folder, where)
    line = sum(shard.lines for shard in shards.done) + source.has_header
    progress(begins, total)
    method: Literal["fork", "spawn"] = "fork" if sys.platform == "linux" else "spawn"
    for shard in _in_order(work, blocks, workers, lambda: process_pool(workers, method, error=DataError)):
        shards.record(replace(shard, examples=tuple((line + own, reason) for own, reason in shard.examples)))
        line += shard.lines
        progress(shard.ends, total)
    if not sum(shard.rows for shard in shards.done):
        condition = "".join(f" with {name} {value!r}" for name, value in where.items())
        raise DataError(f"{source.path} has no row{condition}: there is nothing to prepare.")
    shards.finish()


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
        raise DataError(f"{count} synthetic rows cannot be made: ask for at least 1.")
    workers = _workers("threads", threads)
    source = {"synthetic": True, "rows": count, "seed": seed, "shard": SYNTHETIC_ROWS}
    with open_output(Path(out), SOURCE, source):
        shards = Shards(Path(out))
        shards.drop_damaged()
        if shards.complete:
            return shards

        def work(number: int) -> Shard:
            begins, ends = number * SYNTHETIC_ROWS, min(count, (number + 1) * SYNTHETIC_ROWS)
            write_shard(shards.folder, number, [synthetic_rows(ends - begins, seed=seed, first=begins).table])
            return Shard(ends - begins, ends - begins, begins, ends)

        numbers = iter(range(len(shards.done), -(-count // SYNTHETIC_ROWS)))
        for shard in _in_order(work, numbers, workers, lambda: ThreadPoolExecutor(workers)):
            shards.record(shard)
            progress(shard.ends, count)
        shards.finish()
    return shards


def _prepare_block(
    source: TextSource, folder: Path, where: Mapping[str, str], numbered: tuple[int, TextBlock]
) -> Shard:
    """Write the rows of a block as the shard of that number. Lines are counted from the first of the block."""
    number, block = numbered
    lines = 0
    rejected: list[tuple[int, str]] = []

    def tables() -> Iterator[npt.NDArray[np.int32]]:
        nonlocal lines
        for piece in source.pieces(block):
            parsed = parse(piece, source, where)
            rejected.extend((lines + line, reason) for line, reason in parsed.rejected)
            lines += parsed.lines
            yield parsed.table

    rows = write_shard(folder, number, tables())
    if not rows and not where and lines >= _LINES_WITHOUT_ROW:
        raise DataError(f"{source.path} has no row in the {lines} lines after byte {block.begins}.")
    return Shard(rows, lines, block.begins, block.ends, len(rejected), tuple(rejected[:_MOST_EXAMPLES]))


def _identity(source: TextSource, where: dict[str, str], block: int) -> dict[str, Any]:
    """What distinguishes this preparation from that of another file or with other options."""
    with source.path.open("rb") as file:
        head = hashlib.sha256(file.read(_HEAD)).hexdigest()
    contents = {"file": source.path.name, "bytes": source.path.stat().st_size, "sha256 of the first MiB": head}
    return {"synthetic": False, **contents, "where": where, "block": block}


def _in_order(
    work: Callable[[T], Shard],
    items: Iterator[T],
    workers: int,
    make_pool: Callable[[], AbstractContextManager[Executor]],
) -> Iterator[Shard]:
    """work(item) for all items in parallel, with the results in order; with one worker, run inline.

    Items are taken only as fast as they are worked on, because blocks of a gzipped file hold their text.
    """
    if workers == 1:
        yield from map(work, items)
        return
    queue = deque[Future[Shard]]()
    with make_pool() as pool:
        try:
            for item in items:
                queue.append(pool.submit(work, item))
                if len(queue) > workers:
                    yield queue.popleft().result()
            while queue:
                yield queue.popleft().result()
        finally:
            for future in queue:
                future.cancel()


def _workers(name: str, count: int | None) -> int:
    if count is not None and count < 1:
        raise DataError(f"{name} is {count}, but there must be at least 1.")
    return count or min(_MOST_WORKERS, (os.cpu_count() or 1) + 1)
