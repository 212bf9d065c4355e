"""The result of an examination: what was found, and how well the stored statistics of each layer fit the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .finding import Finding


@dataclass(frozen=True)
class LayerFit:
    """How well the stored statistics of a layer fit, as distances in standard deviations; None if not measured.

    reference   from the stored statistics to those of the reference (`predbn.norm.distance`)
    data        from the stored statistics to those of the data
    shift       from the statistics of the reference to those of the data, in the reference's standard deviations

    Fields that end in "chance" are what the distance would typically be if only chance were at work.
    """

    layer: str
    depth: int
    channels: int
    reference: float | None = None
    reference_chance: float | None = None
    data: float | None = None
    data_chance: float | None = None
    shift: float | None = None
    shift_chance: float | None = None


@dataclass(frozen=True)
class Examination:
    """What the doctor found in a model.

    layers        one row per layer: those that the data reached in the order of the calls
    channels      by layer and data: by how many stored standard deviations the mean of each channel is off, and how
                  many times as wide as stored it is; for figures
    predictions   by data ("reference", "data"): how predictions with stored and with recomputed statistics compare
    examples      by data: how many examples were measured
    """

    layer_count: int
    findings: Sequence[Finding] = ()
    layers: Sequence[LayerFit] = ()
    channels: dict[str, dict[str, tuple[list[float], list[float]]]] = field(default_factory=dict, repr=False)
    predictions: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> list[Finding]:
        """The findings that need something done."""
        return [finding for finding in self.findings if finding.is_problem]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing needs to be done."""
        return not self.problems

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if not self.layer_count:
            return "The model has no batch norm layer, so there are no statistics to examine."
        if self.problems:
            codes = [finding.code for finding in self.problems]
            return f"{len(codes)} problem{'s' if len(codes) > 1 else ''} found: {', '.join(codes)}."
        if not self.examples:
            return (
                f"Nothing is wrong as far as the {self.layer_count} batch norm layers can tell without data; give a "
                "reference of clean data to see whether their statistics fit."
            )
        what = " and ".join(f"{count:,} examples of the {name}" for name, count in self.examples.items())
        return f"Nothing needs to be done: the stored statistics serve the model, measured on {what}."

    def sentences(self) -> list[str]:
        """The verdict, then every finding with what to do."""
        return [self.verdict, *(f"{finding.sentence} {finding.remedy}" for finding in self.findings)]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return {
            "healthy": self.is_healthy,
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "batch_norm_layers": self.layer_count,
            "examples": self.examples,
            "predictions": self.predictions,
            "layers": [asdict(row) for row in self.layers],
        }
