"""Batches of one size from blocks of another."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from predbn.data import Batch, RowBatch

__all__ = ["AnyBatch", "Rebatcher", "block_size"]

AnyBatch = Batch | RowBatch
"""Pictures, or rows of a table: `inputs`, `labels` and `index` are all that is asked of them here."""


class Rebatcher:
    """Cuts a stream of blocks into prediction batches, so that one stream serves several batch sizes.

    Where the size divides the blocks, batches are views into them; otherwise what is left of a block waits for the
    next one. It holds less than one batch.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rest: AnyBatch | None = None

    def push(self, block: AnyBatch) -> list[AnyBatch]:
        """The batches that are complete with this block."""
        rows = block if self._rest is None else _joined(self._rest, block)
        whole = len(rows.labels) // self.size * self.size
        self._rest = _cut(rows, whole, len(rows.labels)) if whole < len(rows.labels) else None
        return [_cut(rows, start, start + self.size) for start in range(0, whole, self.size)]

    def flush(self) -> Iterator[AnyBatch]:
        """The last batch, smaller than the others, where there is one."""
        if self._rest is not None:
            yield self._rest
            self._rest = None


def block_size(sizes: list[int], values: int, at_once: int, least: int) -> int:
    """How many images to corrupt at a time: a multiple of the largest batch, near `at_once` values of `values` an
    image, and of at least `least` batches."""
    largest = max(sizes)
    return largest * max(1, least, at_once // (values * largest))


def _cut(rows: AnyBatch, start: int, stop: int) -> AnyBatch:
    return type(rows)(*(each[start:stop] for each in rows))


def _joined(first: AnyBatch, second: AnyBatch) -> AnyBatch:
    return type(first)(*(torch.cat(both) for both in zip(first, second, strict=True)))
