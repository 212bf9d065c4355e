"""From a file of text to a prepared folder, in one pass, in memory that does not depend on the number of rows.

Blocks of whole lines are read one after another, parsed side by side, and each becomes a shard. No vocabulary is
counted and no statistic is taken, so a shard needs nothing of the others: a preparation that was killed goes on after
its last shard, and lands on the same bytes.
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

import numpy as np
import numpy.typing as npt

from ..errors import DataError
from .parse import Parsed, parse
from .pieces import pieces
from .shards import Shard, Shards
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
_MOST_THREADS = 16

Progress = Callable[[int, int | None], None]
T = TypeVar("T")


def prepare(
    path: str | Path,
    out: str | Path,
    *,
    where: Mapping[str, str] | None = None,
    threads: int | None = None,
    block: int = BLOCK,
    progress: Progress = lambda done, total: None,
) -> Shards:
    """Prepare `train.txt` or a CSV file; what is there of an earlier preparation of the same file is kept.

    where      further columns of a CSV file, and the value that a row must have there to be kept
    threads    blocks parsed side by side; one a core unless given
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

    def work(numbered: tuple[int, Block]) -> Shard:
        number, lines = numbered
        found = _Lines()
        with source.open(lines) as file:
            texts = pieces(file, lines.ends - lines.begins)
            rows = shards.write(number, (found.add(parse(text, source, where)) for text in texts))
        if not rows and not where and found.lines >= _HOPELESS:
            raise DataError(f"{source.path} has no row in the {found.lines} lines after byte {lines.begins}.")
        return Shard(rows, found.lines, lines.begins, lines.ends, found.rejected, tuple(found.examples))

    line = sum(shard.lines for shard in shards.done) + source.has_header
    progress(begins, total)
    for shard in _in_order(work, blocks, _threads(threads)):
        shards.record(_counted_from(shard, line))
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
        shards.write(number, [synthetic_rows(ends - begins, seed=seed, first=begins).table])
        return Shard(ends - begins, ends - begins, begins, ends)

    for shard in _in_order(work, iter(range(len(shards.done), -(-count // SYNTHETIC_ROWS))), _threads(threads)):
        shards.record(shard)
        progress(shard.ends, count)
    shards.finish()
    return shards


class _Lines:
    """Counts the lines of a block, and those that are no rows."""

    def __init__(self) -> None:
        self.lines, self.rejected = 0, 0
        self.examples: list[tuple[int, str]] = []

    def add(self, parsed: Parsed) -> npt.NDArray[np.int32]:
        room = max(0, _EXAMPLES - len(self.examples))
        self.examples += [(self.lines + line, why) for line, why in parsed.rejected[:room]]
        self.lines += parsed.lines
        self.rejected += len(parsed.rejected)
        return parsed.table


def _identity(source: Source, where: dict[str, str], block: int) -> dict[str, Any]:
    """What tells the file and the way of its preparation from others."""
    with source.path.open("rb") as file:
        head = hashlib.sha256(file.read(_HEAD)).hexdigest()
    known = {"file": source.path.name, "bytes": source.path.stat().st_size, "sha256 of the first MiB": head}
    return {"synthetic": False, **known, "where": where, "block": block}


def _counted_from(shard: Shard, line: int) -> Shard:
    """The shard with the lines of its examples counted from the start of the file."""
    return replace(shard, examples=tuple((line + own, why) for own, why in shard.examples))


def _in_order(work: Callable[[T], Shard], items: Iterator[T], threads: int) -> Iterator[Shard]:
    """work(item) side by side, results in order; no more items are taken than threads can work on."""
    pool, waiting = ThreadPoolExecutor(threads), deque[Future[Shard]]()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _threads(given: int | None) -> int:
    if given is not None and given < 1:
        raise DataError(f"threads is {given}, but there must be at least 1.")
    return given or min(_MOST_THREADS, os.cpu_count() or 1)
