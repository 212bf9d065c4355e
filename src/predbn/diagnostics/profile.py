"""The distributions inside a model on one set of data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import DiagnosticError
from predbn.norm import Strategy, Train, batches_of, find_strategy

from .activations import EMBEDDINGS, LOGITS, ActivationRecorder
from .distribution import Bins, Distribution

BINS = 64


class Profile:
    """The distributions inside a model, over all batches that it was updated with."""

    def __init__(self, bins: dict[str, Bins] | None = None) -> None:
        self._bins = None if bins is None else dict(bins)
        self._distributions: dict[str, Distribution] = {}
        self.count = 0

    def update(self, examples: int, activations: dict[str, Tensor]) -> None:
        """Add the activations of a batch."""
        self.__dict__.pop("distributions", None)
        for name, values in activations.items():
            if len(values):
                bins = self._bins_of(name, values.device)
                self._add(name, Distribution.of(values, bins=bins, covariance=name in (EMBEDDINGS, LOGITS)))
        self.count += examples

    @cached_property
    def distributions(self) -> dict[str, Distribution]:
        """Every distribution by name, on the CPU.

        These are the outputs of the batch norm layers (spatial means, before the non-linearity) in the order in which
        they are called, then "embeddings", the input of the last linear layer, and "logits", both with covariances.
        """
        on_cpu = {name: distribution.to("cpu") for name, distribution in self._distributions.items()}
        for name, distribution in on_cpu.items():
            if not bool(distribution.mean.isfinite().all()):
                raise DiagnosticError(
                    f"{name} gave values that are not finite, so it has no distribution: check the model's weights "
                    "and inputs, or use a wider dtype."
                )
        return on_cpu

    @property
    def layers(self) -> dict[str, Distribution]:
        """The outputs of the batch norm layers, in the order of the calls."""
        return {name: d for name, d in self.distributions.items() if name not in (EMBEDDINGS, LOGITS)}

    def bins(self, inside: int = BINS) -> dict[str, Bins]:
        """The bins of every histogram; for a distribution without one, bins over the range seen."""
        return {name: d.bins or Bins.over(d.low, d.high, inside) for name, d in self.distributions.items()}

    def merge(self, other: Profile) -> Profile:
        """The profile of everything that both have seen."""
        merged = Profile(self._bins)
        merged.count = self.count + other.count
        for side in (self, other):
            for name, distribution in side.distributions.items():
                merged._add(name, distribution)
        return merged

    def _add(self, name: str, distribution: Distribution) -> None:
        earlier = self._distributions.get(name)
        self._distributions[name] = distribution if earlier is None else earlier.merge(distribution)

    def _bins_of(self, name: str, device: torch.device) -> Bins | None:
        if self._bins is None:
            return None
        if name not in self._bins:
            raise DiagnosticError(f"The reference has no {name!r}: profile the same model on both.")
        if self._bins[name].low.device != device:
            self._bins[name] = self._bins[name].to(device)
        return self._bins[name]


def profiles(
    model: nn.Module,
    batches: Iterable[Any],
    strategies: Sequence[str | Strategy] = ("train", "batch"),
    *,
    like: Profile | None = None,
    bins: int = BINS,
    outputs: str | None = "all",
    **options: Any,
) -> dict[str, Profile]:
    """One profile per strategy, from a single pass over the data: each batch is predicted under each strategy.

    `batches` are tensors, tuples that begin with one, or dictionaries by the names of the model's arguments; they are
    moved to the model's device. The model is left exactly as it was, even after an error. Nothing synchronises with a
    GPU before a result is read.

    strategies  as `predbn.adapt` takes them
    like        keep histograms, over the bins of this profile, or over `bins` of its ranges if it has none
    outputs     record the outputs of all batch norm layers, or of none, which is faster
    options     for `predbn.adapt`, such as `layers` or `eps`; not for "train", which the others are compared with
    """
    recorders: dict[str, ActivationRecorder] = {}
    for strategy in strategies:
        adapt_options = {} if isinstance(find_strategy(strategy), Train) else options
        recorders[str(strategy)] = ActivationRecorder(model, strategy, outputs=outputs is not None, **adapt_options)
    shared_bins = None if like is None else like.bins(bins)
    result = {name: Profile(shared_bins) for name in recorders}
    for batch in batches_of(batches):
        for name, recorder in recorders.items():
            result[name].update(*recorder.run(batch))
    if any(profile.count == 0 for profile in result.values()):
        raise DiagnosticError("The data gave no batch: give at least one.")
    return result


def profile(model: nn.Module, batches: Iterable[Any], strategy: str | Strategy = "train", **options: Any) -> Profile:
    """The profile of one strategy; the options are those of `profiles`."""
    return profiles(model, batches, (strategy,), **options)[str(strategy)]
