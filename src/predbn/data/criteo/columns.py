"""The columns of Criteo's display advertising data, and how a row of them is held as 40 whole numbers.

A row is a label (1 for a click), 13 numbers I1 … I13 and 26 categories C1 … C26. It is held as int32 [40] in that
order: the numbers as they are, the categories as tokens (see `tokens`). Nothing is scaled, cut or counted: what a
network makes of the columns belongs to the network, and one preparation serves them all.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "CATEGORIES",
    "CLASSES",
    "COLUMNS",
    "LABEL",
    "MISSING_NUMBER",
    "MISSING_TOKEN",
    "NUMBERS",
    "WIDTH",
]

LABEL = "label"
NUMBERS = tuple(f"I{number}" for number in range(1, 14))
CATEGORIES = tuple(f"C{number}" for number in range(1, 27))
COLUMNS = (LABEL, *NUMBERS, *CATEGORIES)
WIDTH = len(COLUMNS)
CLASSES = ("no click", "click")

MISSING_NUMBER = int(np.iinfo(np.int32).min)
"""Stands where a number is missing."""

MISSING_TOKEN = 0
"""Stands where a category is missing; one value in 2³² shares it."""
