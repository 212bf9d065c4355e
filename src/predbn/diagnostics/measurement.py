"""What each batch norm layer sees on a set of data, and what that does to the predictions.

Every batch is predicted twice: with the stored statistics, and with its own. Running statistics are a record of what a
layer saw in training, where all earlier layers normalised with the statistics of the batch. The second pass therefore
measures what they should be, and an error in one layer does not spread to the layers behind it. The first pass shows
how two sets of data differ: there every example is processed by itself, so nothing removes what the examples of a
batch have in common, and a shift adds up from layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from predbn.common import AdaptationError, DiagnosticError
from predbn.norm import (
    Arguments,
    BatchForward,
    PreparedAdaptation,
    Statistics,
    distance,
    evaluating,
    pool_central_moments,
)

from .batches import Batches, regrouped, rows_of, take_rows
from .inputs import example_moments, layers_by_name, observing_inputs
from .predictions import PredictionPair

MIN_EXAMPLES = 32
MAX_KEPT = 200
"""The first inputs are kept, to test on them what may have caused a difference."""


@dataclass
class LayerMoments:
    """The moments of a layer's input on a set of data, from the mean m and the mean square q of each example.

    The variance of all values is σ² = E[q] − μ² with μ = E[m]. The sampling variance of μ is Var[m]/n, that of σ is
    Var[q − 2μm]/(4σ²n).
    """

    examples: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(()))
    """E[m] and E[q], [2, C]."""
    second: Tensor = field(default_factory=lambda: torch.zeros(()))
    """Var[m], Cov[m, q] and Var[q], [3, C]."""

    def update(self, means: Tensor, squares: Tensor) -> None:
        """Add examples, [N, C] each; those that are not finite are left out."""
        values = torch.stack([means.double(), squares.double()])
        values = values[:, values.isfinite().all(2).all(0)]
        n = values.shape[1]
        if n == 0:
            return
        mean = values.mean(1)
        second = _products(values - mean[:, None], values - mean[:, None]).mean(1)
        if self.examples:
            weight = n / (self.examples + n)
            mean, second = pool_central_moments((self.mean, self.second), (mean, second), weight, _products)
        self.mean, self.second, self.examples = mean, second, self.examples + n

    @property
    def statistics(self) -> Statistics:
        mean, square = self.mean
        return Statistics(mean, (square - mean * mean).clamp(min=0))

    def noise(self, unit: Tensor) -> float:
        """The typical distance of these statistics from those of unlimited data, as `predbn.norm.distance` with the
        variance `unit` of the channels.

        Behind other batch norm layers it is an upper bound: these remove a part of what a batch has in common.
        """
        mean, var = self.statistics
        of_mean, mixed, of_square = self.second
        of_var = of_square - 4 * mean * mixed + 4 * mean * mean * of_mean
        of_deviation = of_var.clamp(min=0) / (4 * torch.maximum(var, 1e-6 * unit))  # var may be 0
        return float(((of_mean + of_deviation) / self.examples / unit).mean().sqrt())


class Measurement:
    """The layers' moments and the predictions on a set of data, from one pass over it."""

    def __init__(self, forward: BatchForward, eps: float | None = None) -> None:
        self.forward, self.model = forward, forward.model
        self.examples = 0
        self.recomputed: dict[str, LayerMoments] = {}
        """With the statistics of the batch, in the order of the calls."""
        self.stored: dict[str, LayerMoments] = {}
        """The same with the stored statistics."""
        self.predictions = PredictionPair()
        self._kept: list[Arguments] = []
        self._layers = layers_by_name(self.model)
        self._use_batch = PreparedAdaptation(self.model, "batch", eps=eps)
        self._use_stored = PreparedAdaptation(self.model, "train")

    def update(self, arguments: Arguments) -> None:
        """Add a batch: what the model is called with."""
        with evaluating(self.model):
            with self._use_batch.active(), observing_inputs(self._layers, self._adding_to(self.recomputed)):
                recomputed = self.forward.call(arguments)
            if recomputed is None:
                raise DiagnosticError("The model returned None for a batch: return its output from forward.")
            with self._use_stored.active(), observing_inputs(self._layers, self._adding_to(self.stored)):
                stored = self.forward.call(arguments)
        self.predictions.update(stored, recomputed)
        missing = MAX_KEPT - self.examples
        if missing > 0:
            self._kept.append(arguments if rows_of(arguments) is None else take_rows(arguments, slice(missing)))
        self.examples += self.forward.examples

    def with_eps(self, eps: float | None) -> Measurement:
        """The measurement of the kept examples with another eps in all layers; None for the layers' own."""
        measurement = Measurement(self.forward, eps)
        for arguments in self._kept:
            measurement.update(arguments)
        return measurement

    @cached_property
    def variances_in_pairs(self) -> dict[str, Tensor]:
        """The mean unbiased variance within two examples by layer, as running statistics collect it, of the kept
        examples. Empty for a model whose layers do not see its examples one by one, as in a detector."""
        sums: dict[str, tuple[Tensor, int]] = {}

        def observe(name: str, x: Tensor) -> None:
            examples = self.forward.examples
            if not examples or len(x) % examples:
                return
            moments = example_moments(x, examples)
            means, squares = (per_example.double().unflatten(0, (-1, 2)).mean(1) for per_example in moments)
            values = 2 * x[:, 0].numel() // examples
            var = (squares - means.square()).clamp(min=0) * (values / (values - 1))
            total, count = sums.get(name, (torch.zeros_like(var[0]), 0))
            sums[name] = total + var.sum(0), count + len(var)

        in_pairs = PreparedAdaptation(self.model, "batch", group=2)
        with suppress(AdaptationError), evaluating(self.model), in_pairs.active():
            for arguments in self._kept:
                count = rows_of(arguments)
                if count is None or count < 2:
                    continue
                with observing_inputs(self._layers, observe):
                    self.forward.call(take_rows(arguments, slice(count // 2 * 2)))
        return {name: total / count for name, (total, count) in sums.items()}

    def _adding_to(self, moments: dict[str, LayerMoments]) -> Callable[[str, Tensor], None]:
        def observe(name: str, x: Tensor) -> None:
            if len(x):
                moments.setdefault(name, LayerMoments()).update(*example_moments(x, self.forward.examples))

        return observe


def measure(
    forward: BatchForward, batches: Batches, name: str, after_batch: Callable[[], object] | None = None
) -> Measurement:
    """Measure a model on data, which messages call `name`; `after_batch` is called after each batch that was read."""
    measurement = Measurement(forward)

    def read() -> Iterator[Arguments]:
        for batch in batches:
            yield forward.arguments(batch)
            if after_batch is not None:
                after_batch()

    for arguments in regrouped(read(), batches.size):
        measurement.update(arguments)
    if measurement.examples < MIN_EXAMPLES:
        raise DiagnosticError(
            f"The {name} has {measurement.examples} examples, but their statistics say nothing below {MIN_EXAMPLES}: "
            "give more."
        )
    for layer, moments in measurement.recomputed.items():
        if moments.examples < MIN_EXAMPLES:
            raise DiagnosticError(
                f"On the {name} only {moments.examples} of {measurement.examples} examples reach {layer} with finite "
                "values: check the data, its preprocessing and the weights."
            )
    return measurement


def distance_between(a: LayerMoments, b: LayerMoments, eps: float) -> tuple[float, float]:
    """The distance from the statistics of one set of data to those of another, in standard deviations of the first,
    and what it typically is for two samples of the same data."""
    unit = a.statistics.var + eps
    return distance(b.statistics, a.statistics, eps), math.hypot(a.noise(unit), b.noise(unit))


def distance_from_stored(moments: LayerMoments, stored: Statistics, eps: float) -> tuple[float, float]:
    """The distance from stored statistics to those of data, in stored standard deviations, and its sampling noise."""
    wide = Statistics(*(t.detach().to(moments.mean) for t in stored))
    return distance(moments.statistics, wide, eps), moments.noise(wide.var + eps)


def _products(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a[0] * b[0], a[0] * b[1], a[1] * b[1]])
