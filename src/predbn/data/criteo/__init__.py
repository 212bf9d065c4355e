"""Criteo's display advertising data: 13 numbers and 26 categories a row, and whether it was clicked.

`predbn data criteo --root train.txt` prepares it once, `criteo("test")` opens it. pyarrow separates the columns of
lines that are not regular; regular ones are parsed by numpy, several times as fast.
"""

from .prepare import prepare, prepare_synthetic
from .randomised import PERCENTAGES, Randomised
from .rows import RowBatch, Rows
from .split import criteo, criteo_folder
from .synthetic import Synthetic, synthetic_rows
from .synthetic_text import write_synthetic_text

__all__ = [
    "PERCENTAGES",
    "Randomised",
    "RowBatch",
    "Rows",
    "Synthetic",
    "criteo",
    "criteo_folder",
    "prepare",
    "prepare_synthetic",
    "synthetic_rows",
    "write_synthetic_text",
]
