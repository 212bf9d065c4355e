"""Units of work: each can be computed independently, in any process and in any order.

All of it is plain data that travels between processes. A unit contains everything that needs the same stream of images,
so that every image is corrupted once for all models, strategies and methods.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from .splits import Split


class Cell(NamedTuple):
    """What is measured on a stream: one model (or ensemble) with one method under one strategy and batch size."""

    model: str
    method: str
    strategy: str
    batch_size: int


class Fit(NamedTuple):
    """A number fitted on validation data, for one model under one strategy and batch size."""

    model: str
    strategy: str
    batch_size: int
    what: Literal["temperature"]
    value: float


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
        return f"{self.split.corruption}-{self.split.severity}-{_digest(self)}"

    @property
    def label(self) -> str:
        """The text for progress bars."""
        return str(self.split)


@dataclass(frozen=True)
class FitUnit:
    """A temperature to fit on the validation data."""

    model: str
    strategy: str
    batch_size: int

    @property
    def name(self) -> str:
        return f"temperature-{_digest(self)}"

    @property
    def label(self) -> str:
        """The text for progress bars."""
        return f"temperature of {self.model}"


Unit = SplitUnit | FitUnit


def _digest(unit: Unit) -> str:
    return hashlib.sha256(json.dumps(asdict(unit), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Row:
    """A measured cell: its metrics and its reliability diagram bin by bin; if the plan wants them, packed hits and the
    `Predictions` of all images."""

    cell: Cell
    split: Split
    order: str
    seed: int
    metrics: dict[str, float]
    reliability: list[dict[str, Any]] = field(repr=False)
    hits: bytes | None = field(default=None, repr=False)
    predictions: dict[str, Any] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class UnitResult:
    """The result of a unit: the rows of a split, or a fit."""

    unit: Unit
    rows: tuple[Row, ...] = ()
    fits: tuple[Fit, ...] = ()
