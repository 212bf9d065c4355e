"""How well the stored statistics of a model fit a set of data.

The thresholds here and in the files that use them were chosen on the networks of docs/doctor.md, which also says how
far from them every network is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .data_statistics import DataStatistics, distance_and_chance
from .stored_statistics import has_finite_statistics, stored_in

TIMES_CHANCE = 3.0
"""A distance counts if it is more than three times what chance typically gives."""
OFF = 0.4
"""A layer is off by itself beyond so many standard deviations. Healthy networks are off by up to 0.34, because their
stored statistics are those of augmented training images, and those that have gone wrong mostly by 0.5 and more."""
LEAST_GAIN = 0.02
"""Recomputed statistics are better if they tell at least so many nats more, and three standard errors."""
LEAST_AGREEMENT = 0.9
"""If fewer predictions stay the same with recomputed statistics, those of a layer that is off matter."""


def fit_limit(chance: float, least: float = OFF) -> float:
    """How far the stored statistics of a layer may be from those of clean data."""
    return max(least, TIMES_CHANCE * chance)


@dataclass(frozen=True)
class Fit:
    """What was measured on a set of data, and how far the stored statistics are from it in each layer."""

    name: str
    measured: DataStatistics
    distances: Mapping[str, tuple[float, float]]
    """By layer in the order of the calls: the distance and what chance gives."""

    @classmethod
    def of(cls, name: str, measured: DataStatistics, layers: Mapping[str, Any]) -> Fit:
        return cls(name, measured, layer_distances(measured, layers))

    def beyond(self, least: float) -> tuple[str, ...]:
        """The layers that are further off than this and than chance."""
        return tuple(n for n, (d, chance) in self.distances.items() if d > fit_limit(chance, least))

    def channels(self, name: str, layer: Any) -> tuple[list[float], list[float]]:
        """By how many stored standard deviations each channel's mean is off, and how many times as wide it is."""
        mean, var = self.measured.layers[name].statistics
        stored_mean, stored_var = (t.detach().to(mean) for t in stored_in(layer))
        scale = stored_var.clamp(min=0) + float(layer.eps)
        return ((mean - stored_mean) / scale.sqrt()).tolist(), ((var + float(layer.eps)) / scale).sqrt().tolist()

    @property
    def has_gain(self) -> bool:
        """Whether predictions tell clearly more with recomputed statistics."""
        if not self.measured.predictions.count:
            return False
        gain = self.measured.predictions.gain()
        return gain.mean > max(LEAST_GAIN, TIMES_CHANCE * gain.error)

    @property
    def predictions_suffer(self) -> bool:
        """Whether the predictions depend on what is off; True if they are not known."""
        predictions = self.measured.predictions
        return not predictions.count or self.has_gain or predictions.agreement < LEAST_AGREEMENT


def layer_distances(measured: DataStatistics, layers: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """By layer in the order of the calls: how far its stored statistics are from those of the data, and by chance.

    Layers whose statistics nothing can be compared with are left out: not finite, or a variance and an eps of 0.
    """
    return {
        name: distance_and_chance(moments, stored_in(layers[name]), float(layers[name].eps))
        for name, moments in measured.layers.items()
        if name in layers and has_finite_statistics(layers[name]) and _has_unit(layers[name])
    }


def _has_unit(layer: Any) -> bool:
    return bool((layer.running_var + layer.eps > 0).all())
