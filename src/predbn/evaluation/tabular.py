"""Tables in place of pictures: which plans are about rows, what their splits are, and how their data is opened.

Rows are randomised when they are asked for, as pictures are corrupted. Severities are percentages.
"""

from __future__ import annotations

from predbn.common import EvaluationError
from predbn.data import CLEAN, PERCENTAGES, Randomised, Rows, criteo
from predbn.data import CriteoPart as Part

__all__ = ["PERCENTAGES", "check_row_shift", "is_tabular", "open_randomised", "open_rows"]

_KIND = "criteo"
_SHIFTS = ("tokens", "columns", "marginals")


def is_tabular(data: str) -> bool:
    """Whether a plan's data is rows of a table."""
    return data.partition(":")[0] == _KIND


def check_row_shift(shift: str) -> None:
    """Refuse a word that stands for no shift of rows."""
    if shift not in ("all", CLEAN, *_SHIFTS):
        raise EvaluationError(f"rows have no shift {shift!r}: use all, {CLEAN}, {', '.join(_SHIFTS)}.")


def open_rows(reference: str, part: Part) -> Rows:
    """The rows of ``criteo``, ``criteo:FOLDER`` or ``criteo:FOLDER#PART``: that part, the one asked for unless named.

    A folder that is a test set of its own is named with ``#all``.
    """
    _, _, place = reference.partition(":")
    folder, _, named = place.partition("#")
    return criteo(named or part, folder or None)  # type: ignore[arg-type]


def open_randomised(reference: str, block: int) -> Randomised:
    """The test rows under every randomisation, training rows giving the values that are drawn by `marginals`.

    `block` is the prediction batch: `columns` draws for so many rows at once, as the reference benchmark does. All
    rows of a folder include its training rows, so that there are no others to draw values from.
    """
    test = open_rows(reference, "test")
    train = None if reference.endswith("#all") else open_rows(reference.partition("#")[0], "train")
    return Randomised(test, train=train, block=block)
