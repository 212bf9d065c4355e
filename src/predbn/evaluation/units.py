"""Units of work: what can be computed by itself, anywhere, in any order.

All of it is plain data that travels between processes. A unit is all that one stream of images is needed for, so
that every image is corrupted once for all models, strategies and methods.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from .splits import Split

__all__ = ["Cell", "Fit", "FitUnit", "Row", "SplitUnit", "Unit", "UnitResult"]


class Cell(NamedTuple):
    """What is measured on a stream: one model (or ensemble) with one method under one strategy and batch size."""

    model: str
    method: str
    strategy: str
    batch_size: int


class Fit(NamedTuple):
    """A number found on validation data, for one model under one strategy and batch size."""

    model: str
    strategy: str
    batch_size: int
    what: Literal["temperature", "eps"]
    value: float | None


@dataclass(frozen=True)
class SplitUnit:
    """Cells to measure on one split, in one order, with one seed; and the fits that they need."""

    split: Split
    order: str
    seed: int
    cells: tuple[Cell, ...]
    fits: tuple[Fit, ...] = ()

    @property
    def name(self) -> str:
        """A name that says what it is, and differs wherever the work does."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.split.corruption}-{self.split.severity}-{digest}"

    @property
    def label(self) -> str:
        """What a person is told that it is."""
        return str(self.split)


@dataclass(frozen=True)
class FitUnit:
    """Something to fit on the validation data; the eps that it is to be fitted under where that was tuned."""

    model: str
    strategy: str
    batch_size: int
    what: Literal["temperature", "eps"]
    eps: float | None = None

    @property
    def name(self) -> str:
        """A name that says what it is, and differs wherever the work does."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
        return f"{self.what}-{digest}"

    @property
    def label(self) -> str:
        """What a person is told that it is."""
        return f"{self.what} of {self.model}"


Unit = SplitUnit | FitUnit


@dataclass(frozen=True)
class Row:
    """A measured cell: its metrics, its reliability diagram bin by bin, and which images were right, where wanted."""

    cell: Cell
    split: Split
    order: str
    seed: int
    metrics: dict[str, float]
    reliability: list[dict[str, Any]] = field(repr=False)
    hits: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class UnitResult:
    """What a unit came to: rows of a split, or a fit."""

    unit: Unit
    rows: tuple[Row, ...] = ()
    fits: tuple[Fit, ...] = ()
