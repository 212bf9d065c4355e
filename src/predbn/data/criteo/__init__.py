"""Criteo's display advertising data: per row 13 numbers, 26 categories, and whether the ad was clicked.

`predbn data criteo --root train.txt` prepares it once with pyarrow, `criteo("test")` opens it.
"""

from .prepare import prepare, prepare_synthetic
from .randomised import PERCENTAGES, Randomised
from .rows import Part, RowBatch, Rows, criteo, criteo_folder
from .synthetic import Synthetic, synthetic_rows

__all__ = [
    "PERCENTAGES",
    "Part",
    "Randomised",
    "RowBatch",
    "Rows",
    "Synthetic",
    "criteo",
    "criteo_folder",
    "prepare",
    "prepare_synthetic",
    "synthetic_rows",
]
