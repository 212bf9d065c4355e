"""From a file of text to a prepared folder, in one pass, in memory that does not depend on the number of rows.

Blocks of whole lines are parsed side by side by several processes, and each becomes a shard. No vocabulary is counted
and no statistic is taken, so a shard needs nothing of the others: a preparation that was killed goes on after its last
shard, and lands on the same bytes.

Processes, because parsing is many short calls of numpy, and threads would wait for each other between them. On Linux
they are forked, since a new interpreter would need seconds to import torch; they touch nothing but numpy and files.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from predbn.common import DataError

from .parse import Parsed, parse
from .pieces import pieces
from .shards import Shard, Shards, write_shard
from .source import Block, Source, open_source
from .synthetic import synthetic_rows

__all__ = ["Progress", "prepare", "prepare_synthetic"]

BLOCK = 1 << 24
"""Bytes of text in a shard: about 70,000 rows."""

SYNTHETIC_ROWS = 1 << 16
"""Synthetic rows in a shard."""

_EXAMPLES = 100
_HEAD = 1 << 20
_HOPELESS = 100
_MOST_WORKERS = 16

Progress = Callable[[int, int | None], object]
T = TypeVar("T")


def prepare(
    path: str | Path,
    out: str | Path,
    *,
    where: Mapping[str, str] | None = None,
    processes: int | None = None,
    block: int = BLOCK,
    progress: Progress = lambda done, total: None,
) -> Shards:
    """Prepare `train.txt` or a CSV file; what is there of an earlier preparation of the same file is kept.

    where      further columns of a CSV file, and the value that a row must have there to be kept
    processes  how many parse side by side; one more than cores unless given, since some wait for the disk
    block      bytes of text in a shard
    progress   called with (bytes done, bytes in all), the latter None where the file is gzipped

    Lines that are no rows (another number of columns, a label that is neither 0 nor 1, a number that is none) are left
    out, counted, and listed with their number in `Shard.examples`, up to 100 a shard. A block of a hundred lines and
    more without any row ends the preparation: the file is another one.
    """
    source = open_source(path)
    where = dict(where or {})
    for name in where:
        if name not in source.columns:
            raise DataError(f"{source.path} has no column {name!r}: it has {', '.join(source.columns)}.")
    shards = Shards(Path(out), _identity(source, where, block))
    if shards.complete:
        return shards
    total = None if source.is_packed else source.path.stat().st_size
    begins = shards.done[-1].ends if shards.done else source.begins
    first = len(shards.done)
    blocks = enumerate(source.blocks(block, begins=begins), first)
    work = partial(_prepare_block, source, shards.folder, where)
    workers = _workers("processes", processes)
    kind = get_context("fork" if sys.platform == "linux" else "spawn")
    line = sum(shard.lines for shard in shards.done) + source.has_header
    progress(begins, total)
    for shard in _in_order(work, blocks, workers, lambda: ProcessPoolExecutor(workers, kind)):
        shards.record(replace(shard, examples=tuple((line + own, why) for own, why in shard.examples)))
        line += shard.lines
        progress(shard.ends, total)
    if not sum(shard.rows for shard in shards.done):
        wanted = "".join(f" with {name} {value!r}" for name, value in where.items())
        raise DataError(f"{source.path} has no row{wanted}: there is nothing to prepare.")
    shards.finish()
    return shards


def prepare_synthetic(
    count: int,
    out: str | Path,
    *,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Shards:
    """Fill a folder with synthetic rows, which are not Criteo's, as if they had been prepared from text."""
    if count < 1:
        raise DataError(f"{count} synthetic rows cannot be made: ask for at least 1.")
    shards = Shards(Path(out), {"synthetic": True, "rows": count, "seed": seed, "shard": SYNTHETIC_ROWS})
    if shards.complete:
        return shards

    def work(number: int) -> Shard:
        begins, ends = number * SYNTHETIC_ROWS, min(count, (number + 1) * SYNTHETIC_ROWS)
        write_shard(shards.folder, number, [synthetic_rows(ends - begins, seed=seed, first=begins).table])
        return Shard(ends - begins, ends - begins, begins, ends)

    workers, missing = _workers("threads", threads), iter(range(len(shards.done), -(-count // SYNTHETIC_ROWS)))
    for shard in _in_order(work, missing, workers, lambda: ThreadPoolExecutor(workers)):
        shards.record(shard)
        progress(shard.ends, count)
    shards.finish()
    return shards


@dataclass
class _Lines:
    """Counts the lines of a block, and those that are no rows."""

    lines: int = 0
    rejected: int = 0
    examples: tuple[tuple[int, str], ...] = ()

    def add(self, parsed: Parsed) -> npt.NDArray[np.int32]:
        room = _EXAMPLES - len(self.examples)
        self.examples += tuple((self.lines + line, why) for line, why in parsed.rejected[:room])
        self.lines += parsed.lines
        self.rejected += len(parsed.rejected)
        return parsed.table


def _prepare_block(source: Source, folder: Path, where: Mapping[str, str], numbered: tuple[int, Block]) -> Shard:
    """Write the rows of a block as the shard of that number, and say what it holds, lines counted from its first."""
    number, block = numbered
    found = _Lines()
    with source.open(block) as file:
        tables = (found.add(parse(piece, source, where)) for piece in pieces(file, block.ends - block.begins))
        rows = write_shard(folder, number, tables)
    if not rows and not where and found.lines >= _HOPELESS:
        raise DataError(f"{source.path} has no row in the {found.lines} lines after byte {block.begins}.")
    return Shard(rows, found.lines, block.begins, block.ends, found.rejected, found.examples)


def _identity(source: Source, where: dict[str, str], block: int) -> dict[str, Any]:
    """What tells the file and the way of its preparation from others."""
    with source.path.open("rb") as file:
        head = hashlib.sha256(file.read(_HEAD)).hexdigest()
    known = {"file": source.path.name, "bytes": source.path.stat().st_size, "sha256 of the first MiB": head}
    return {"synthetic": False, **known, "where": where, "block": block}


def _in_order(
    work: Callable[[T], Shard], items: Iterator[T], workers: int, pool: Callable[[], Executor]
) -> Iterator[Shard]:
    """work(item) side by side, results in order; no more items are taken than can be worked on. One worker is this."""
    if workers == 1:
        yield from map(work, items)
        return
    waiting = deque[Future[Shard]]()
    with pool() as running:
        try:
            for item in items:
                waiting.append(running.submit(work, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            running.shutdown(wait=True, cancel_futures=True)


def _workers(name: str, given: int | None) -> int:
    if given is not None and given < 1:
        raise DataError(f"{name} is {given}, but there must be at least 1.")
    return given or min(_MOST_WORKERS, (os.cpu_count() or 1) + 1)
