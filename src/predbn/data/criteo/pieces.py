"""The text of a block, a few hundred kilobytes of whole lines at a time, in one buffer that is used again and again:
what is parsed is still in the cache from being read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

__all__ = ["PAD", "PIECE", "Piece", "pieces"]

PAD = 8
"""How many bytes there are before and after a piece, so that each of its bytes begins and ends a 64-bit word."""

PIECE = 1 << 18
"""Bytes of a piece: they and their positions fit the cache, and one odd line costs no more than these."""


class Piece(NamedTuple):
    """Whole lines at the places PAD to `end` of a buffer; they are there until the next piece is asked for."""

    buffer: bytearray
    end: int

    @property
    def text(self) -> bytes:
        """A copy of the lines."""
        return bytes(self.buffer[PAD : self.end])


def pieces(file: BinaryIO, length: int, *, size: int = PIECE) -> Iterator[Piece]:
    """The next `length` bytes of a file in pieces of at most `size` bytes; more where a line needs them."""
    buffer, rest = bytearray(PAD + size + PAD), 0
    while length or rest:
        if rest == len(buffer) - 2 * PAD:
            buffer.extend(bytes(size))
        begin = PAD + rest
        room = memoryview(buffer)[begin : min(begin + length, len(buffer) - PAD)]
        filled = begin + _fill(file, room)
        room.release()
        length = length - (filled - begin) if filled > begin else 0
        end = buffer.rfind(b"\n", PAD, filled) + 1 if length else filled
        rest = filled - end if end else filled - PAD
        if end:
            yield Piece(buffer, end)
            buffer[PAD : PAD + rest] = buffer[end:filled]


def _fill(file: BinaryIO, room: memoryview) -> int:
    """Read until the room is full or the file at its end."""
    filled = 0
    while filled < len(room) and (count := file.readinto(room[filled:])):  # type: ignore[attr-defined]
        filled += count
    return filled
