"""Small files of rows, and a slow parser to compare with."""

import hashlib
from pathlib import Path

import numpy as np

from predbn.data.criteo.columns import COLUMNS, MISSING_NUMBER
from predbn.data.criteo.synthetic import synthetic_rows

MULTIPLIER = 0x9E3779B97F4A7C15


def slow_token(text: str) -> int:
    """The formula in the docstring of `columns`, in Python integers."""
    if not text:
        return 0
    raw = text.encode()
    if len(raw) == 8:
        token = (int.from_bytes(raw, "little") * MULTIPLIER % 2**64) >> 32
    else:
        token = int.from_bytes(hashlib.blake2b(raw, digest_size=4).digest(), "little")
    return token - 2**32 if token >= 2**31 else token


def slow_row(cells: list[str]) -> list[int]:
    numbers = [int(cell) if cell else MISSING_NUMBER for cell in cells[:14]]
    return numbers + [slow_token(cell) for cell in cells[14:]]


def slow_table(text: str) -> np.ndarray:
    rows = [slow_row(line.split("\t")) for line in text.splitlines()]
    return np.array(rows, np.int32).reshape(-1, 40)


def lines(count: int, seed: int = 0) -> list[str]:
    """Synthetic rows as lines of text, written by Python."""
    rows = synthetic_rows(count, seed=seed)
    texts = []
    for row in range(count):
        numbers = ["" if value == MISSING_NUMBER else str(value) for value in rows.numbers[row].tolist()]
        pairs = zip(rows.categories[row].tolist(), rows.missing[row].tolist(), strict=True)
        texts.append("\t".join([str(rows.labels[row]), *numbers, *("" if gone else f"{v:08x}" for v, gone in pairs)]))
    return texts


def write_lines(path: Path, count: int, *, seed: int = 0) -> None:
    """Write synthetic rows in the layout of Kaggle's `train.txt`."""
    path.write_text("\n".join(lines(count, seed)) + "\n")


def header(delimiter: str = ",") -> str:
    return delimiter.join(COLUMNS)
