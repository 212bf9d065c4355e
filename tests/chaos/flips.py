"""Flip single bits of a file, and count how often a reader does not notice."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from predbn.common import PredbnError


class Flips(NamedTuple):
    """How many single bits were flipped, how many of these flips the reader noticed, and what it did of the others.

    harmless is how often it returned what it returned before; changed are the bits after which it returned something
    else without a word.
    """

    tried: int
    noticed: int
    harmless: int
    changed: list[int]


def flip_bits(
    path: Path,
    read: Callable[[Path], object],
    *,
    count: int = 1_500,
    seed: int = 0,
    bits: Iterable[int] | None = None,
    same: Callable[[object, object], object] = lambda before, after: before == after,
) -> Flips:
    """Flip `count` random bits of a file, or the given ones, one at a time, and read the file after each.

    The reader notices with a PredbnError; any other exception of it is raised. The file is restored at the end.
    """
    content, expected = path.read_bytes(), read(path)
    chance = random.Random(seed)
    chosen = [chance.randrange(8 * len(content)) for _ in range(count)] if bits is None else list(bits)
    noticed, harmless, changed = 0, 0, []
    try:
        for bit in chosen:
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            try:
                found = read(path)
            except PredbnError:
                noticed += 1
            else:
                if same(expected, found):
                    harmless += 1
                else:
                    changed.append(bit)
    finally:
        path.write_bytes(content)
    return Flips(len(chosen), noticed, harmless, changed)
