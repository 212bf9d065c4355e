"""The result of an examination: findings, and how far the statistics of each layer are from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .finding import Finding


@dataclass(frozen=True)
class LayerExamination:
    """The distances between the statistics of a layer, each as `predbn.norm.distance`; None if not measured.

    depth             the position of the layer in the order of the calls, from 1
    fit               from the stored statistics to those of the reference, in stored standard deviations
    shift             from the reference to the data, in standard deviations of the reference, with the stored
                      statistics; with those of the batch if the stored ones are wrong
    shift_recomputed  the same with the statistics of the batch in all layers; None if `shift` is that
    fit_noise         the typical distance if there were nothing but sampling noise; `shift_noise` likewise
    fit_limit         the distance beyond which the layer does not fit; beyond `shift_limit` it has shifted
    """

    layer: str
    depth: int
    channels: int
    fit: float | None = None
    fit_noise: float | None = None
    fit_limit: float | None = None
    shift: float | None = None
    shift_noise: float | None = None
    shift_limit: float | None = None
    shift_recomputed: float | None = None

    @property
    def has_shifted(self) -> bool:
        return self.shift is not None and self.shift_limit is not None and self.shift > self.shift_limit


@dataclass(frozen=True)
class Examination:
    """The findings about a model and its data.

    layers        one row per layer: those that the data reached in the order of the calls
    channels      by layer and data ("reference", "data"): for each channel the distance of its mean from the stored one
                  in stored standard deviations, and the ratio of its standard deviation to the stored one; for figures
    predictions   by data: how predictions with stored and with recomputed statistics compare
    examples      by data: how many examples were measured
    """

    layer_count: int
    findings: Sequence[Finding] = ()
    layers: Sequence[LayerExamination] = ()
    channels: dict[str, dict[str, tuple[list[float], list[float]]]] = field(default_factory=dict, repr=False)
    predictions: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)

    @property
    def problems(self) -> list[Finding]:
        """The findings that need something done."""
        return [finding for finding in self.findings if finding.is_problem]

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    @property
    def is_broken(self) -> bool:
        """Whether the stored statistics are wrong, so that no advice can rest on predictions with them."""
        return any(finding.breaks_predictions for finding in self.findings)

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
                f"Nothing is wrong with the {self.layer_count} batch norm layers as far as can be seen without data; "
                "give a reference of clean data to see whether their statistics fit."
            )
        if self.findings:
            return f"No problem found, but worth knowing: {', '.join(finding.code for finding in self.findings)}."
        measured = " and ".join(f"{count:,} examples of the {name}" for name, count in self.examples.items())
        return f"Nothing needs to be done: the stored statistics serve the model, measured on {measured}."

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
