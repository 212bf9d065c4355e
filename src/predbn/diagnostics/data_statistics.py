"""What each batch norm layer sees on a set of data, and what that does to the predictions.

Every batch is predicted twice: with the stored statistics, and with its own. Running statistics are a record of what a
layer saw in training, where all earlier layers normalised with the statistics of the batch. The second pass therefore
measures what they should be, and an error in one layer does not spread to the layers behind it. The first pass shows
how two sets of data differ: there every example is processed by itself, so nothing takes out what the examples of a
batch have in common, and a shift adds up from layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError, DiagnosticError
from predbn.norm import (
    Arguments,
    BatchForward,
    Forward,
    Observation,
    PreparedAdaptation,
    Statistics,
    device_of,
    distance,
    evaluating,
    pool_central_moments,
)

from .batches import Batches, DataSet, regrouped, rows, rows_of
from .predictions import PredictionPair
from .recorder import name_prefix

LEAST_EXAMPLES = 32
KEPT_EXAMPLES = 200
"""So many inputs are kept, to test on them what may have caused a difference."""


@dataclass
class LayerMoments:
    """The moments of a layer's input on a set of data, from the mean m and the mean square q of each example.

    The variance of all values is σ² = E[q] − μ² with μ = E[m]. By chance μ scatters with the variance Var[m]/n, and σ
    with Var[q − 2μm]/(4σ²n).
    """

    examples: int = 0
    mean: Tensor = field(default_factory=lambda: torch.zeros(()))
    """E[m] and E[q], [2, C]."""
    second: Tensor = field(default_factory=lambda: torch.zeros(()))
    """Var[m], Cov[m, q] and Var[q], [3, C]."""

    def update(self, means: Tensor, squares: Tensor) -> None:
        """Add examples, [N, C] each; those that are not finite are left out."""
        values = torch.stack([means, squares]).double()
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

    def chance(self, unit: Tensor) -> float:
        """How far these statistics typically are from those of unlimited data, as `distance` with the variance `unit`
        of the channels.

        Behind other batch norm layers it is an upper bound: these take out a part of what a batch has in common.
        """
        mean, var = self.statistics
        of_mean, mixed, of_square = self.second
        of_var = of_square - 4 * mean * mixed + 4 * mean * mean * of_mean
        of_deviation = of_var.clamp(min=0) / (4 * torch.maximum(var, 1e-6 * unit))  # it may be constant
        return float(((of_mean + of_deviation) / self.examples / unit).mean().sqrt())


class DataStatistics:
    """The layers' moments and the predictions on a set of data, in one pass over it."""

    def __init__(self, forward: BatchForward, eps: float | None = None) -> None:
        self.forward, self.model = forward, forward.model
        self.examples = 0
        self.layers: dict[str, LayerMoments] = {}
        """With the statistics of the batch, in the order of the calls."""
        self.with_stored: dict[str, LayerMoments] = {}
        """The same with the stored statistics."""
        self.predictions = PredictionPair()
        self.kept: list[Arguments] = []
        self._batch = PreparedAdaptation(self.model, "batch", observer=partial(self._observe, self.layers), eps=eps)
        self._stored = PreparedAdaptation(self.model, "train", observer=partial(self._observe, self.with_stored))

    def update(self, arguments: Arguments) -> None:
        """Add a batch: what the model is called with."""
        with evaluating(self.model):
            with self._batch.active():
                recomputed = self.forward.call(arguments)
            if recomputed is None:
                raise DiagnosticError("The model returned nothing for a batch: return its output from forward.")
            with self._stored.active():
                stored = self.forward.call(arguments)
        self.predictions.update(stored, recomputed)
        missing = KEPT_EXAMPLES - self.examples
        if missing > 0:
            self.kept.append(arguments if rows_of(arguments) is None else rows(arguments, slice(missing)))
        self.examples += self.forward.examples

    def with_eps(self, eps: float | None) -> DataStatistics:
        """The same of the examples that were kept, with another eps in all layers; None for their own."""
        measured = DataStatistics(self.forward, eps)
        for arguments in self.kept:
            measured.update(arguments)
        return measured

    @cached_property
    def variances_in_pairs(self) -> dict[str, Tensor]:
        """The mean unbiased variance within two examples, as running statistics collect it, for each layer; of the
        inputs that were kept. Empty for a model whose layers do not see its examples one by one, as in a detector."""
        sums: dict[str, tuple[Tensor, int]] = {}

        def observe(observation: Observation, statistics: Statistics) -> None:
            _, var, values, _ = observation.moments()
            var = var.double() * (values / (values - 1))
            total, count = sums.get(self._name(observation), (torch.zeros_like(var[0]), 0))
            sums[self._name(observation)] = total + var.sum(0), count + len(var)

        in_pairs = PreparedAdaptation(self.model, "batch", observer=observe, group=2)
        with suppress(AdaptationError), evaluating(self.model), in_pairs.active():
            for arguments in self.kept:
                count = rows_of(arguments)
                if count != 1:
                    self.forward.call(arguments if count is None else rows(arguments, slice(count // 2 * 2)))
        return {layer: total / count for layer, (total, count) in sums.items()}

    def _observe(self, layers: dict[str, LayerMoments], observation: Observation, statistics: Statistics) -> None:
        layers.setdefault(self._name(observation), LayerMoments()).update(*observation.example_moments())

    def _name(self, observation: Observation) -> str:
        return observation.layer.removeprefix(name_prefix(self.model))


def measure(
    model: nn.Module,
    data: DataSet | Iterable[Any],
    name: str = "data",
    *,
    batch_size: int = 100,
    forward: Forward | None = None,
    seed: int = 0,
    after_batch: Callable[[], object] | None = None,
) -> DataStatistics:
    """The statistics of data as in `examine`, which takes the result as its reference, to measure that only once.

    It holds as long as the model does not change. `name` is what messages call the data; `after_batch` is called after
    each batch that was read.
    """
    measured = DataStatistics(BatchForward(model, forward))

    def read() -> Iterator[Arguments]:
        for batch in data if isinstance(data, Batches) else Batches(data, batch_size, device_of(model), seed):
            yield measured.forward.arguments(batch)
            if after_batch is not None:
                after_batch()

    for arguments in regrouped(read(), batch_size):
        measured.update(arguments)
    if measured.examples < LEAST_EXAMPLES:
        raise DiagnosticError(
            f"The {name} has {measured.examples} examples, but statistics of fewer than {LEAST_EXAMPLES} tell nothing: "
            "give more."
        )
    for layer, moments in measured.layers.items():
        if moments.examples < LEAST_EXAMPLES:
            raise DiagnosticError(
                f"On the {name} only {moments.examples} of {measured.examples} examples reach {layer} with finite "
                "values: check the data, its preprocessing and the weights."
            )
    return measured


def distance_between(
    reference: DataStatistics, data: DataStatistics, layer: str, eps: float, *, are_right: bool
) -> tuple[float, float]:
    """How far the statistics of a layer on the data are from those on the reference, in standard deviations of the
    reference, and how far by chance.

    Both are seen with the stored statistics if these are right: a network with wrong ones sees little of any shift.
    """
    sides = [each.with_stored.get(layer, LayerMoments()) for each in (reference, data)]
    if not are_right or min(side.examples for side in sides) < LEAST_EXAMPLES:
        sides = [each.layers[layer] for each in (reference, data)]
    a, b = sides
    return distance(b.statistics, a.statistics, eps), chance_between(a, b, a.statistics.var + eps)


def chance_between(a: LayerMoments, b: LayerMoments, unit: Tensor) -> float:
    """How far the statistics of two samples of the same data typically are from each other."""
    return math.hypot(a.chance(unit), b.chance(unit))


def distance_and_chance(moments: LayerMoments, stored: Statistics, eps: float) -> tuple[float, float]:
    """How far stored statistics are from those of the data, and how far by chance, in stored standard deviations."""
    wide = Statistics(*(t.detach().to(moments.mean) for t in stored))
    return distance(moments.statistics, wide, eps), moments.chance(wide.var + eps)


def _products(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a[0] * b[0], a[0] * b[1], a[1] * b[1]])
