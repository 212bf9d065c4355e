"""The distributions inside a model on one set of data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import DiagnosticError
from predbn.norm import Forward, Layers, Population, Strategy, Train, batches_of, find_strategy

from .confidence import Confidence
from .distribution import Distribution
from .histogram import Bins
from .recorder import ActivationRecorder, BatchActivations

BINS = 64
EMBEDDINGS = "embeddings"
LOGITS = "logits"


class Profile:
    """The distributions inside a model, over all batches that it was updated with.

    `layers` has the outputs of the batch norm layers (spatial means, before the non-linearity) by name, in the order in
    which they are called. `embeddings` is the input of the last linear layer and `logits` its output, both with
    covariances; None if the model has no such thing. `confidence` is a histogram of the largest probability.

    While data comes in, layers with the same number of rows are kept side by side as one distribution, so that a batch
    costs a few operations rather than a few per layer.
    """

    def __init__(self, *, bins: dict[str, Bins] | None = None, covariance: Collection[str] = ()) -> None:
        self._bins = bins
        self._covariance = frozenset(covariance)
        self._groups: dict[tuple[tuple[str, int], ...], Distribution] = {}
        self._confidence: Confidence | None = None
        self.count = 0
        self.largest_batch = 0

    def update(self, activations: BatchActivations) -> None:
        """Add the activations of a batch."""
        self.__dict__.pop("distributions", None)
        values = dict(activations.layers)
        for name, tensor in ((EMBEDDINGS, activations.embeddings), (LOGITS, activations.logits)):
            if tensor is not None:
                values[name] = tensor
        for _, group in groupby(values, lambda name: (len(values[name]), self._own_group(name))):
            names = list(group)
            columns = tuple((name, values[name].shape[1]) for name in names)
            self._distribution(columns).update(_concatenate(values, names))
        if activations.logits is not None:
            self._confidence = self._confidence or Confidence()
            self._confidence.update(activations.logits)
        self.count += activations.examples
        self.largest_batch = max(self.largest_batch, activations.examples)

    @cached_property
    def distributions(self) -> dict[str, Distribution]:
        """Every distribution by name, on the CPU: the layers, then embeddings and logits."""
        by_name: dict[str, Distribution] = {}
        for columns, group in self._groups.items():
            on_cpu = group.cpu()
            for (name, width), end in zip(columns, accumulate(width for _, width in columns), strict=True):
                part = on_cpu.take(slice(end - width, end))
                by_name[name] = by_name[name].merge(part) if name in by_name else part
        for name, distribution in by_name.items():
            if not bool(distribution.gaussian.mean.isfinite().all()):
                raise DiagnosticError(
                    f"{name} gave values that are not finite, so it has no distribution: check the model's weights "
                    "and inputs, or use a wider dtype."
                )
        return by_name

    @property
    def layers(self) -> dict[str, Distribution]:
        """The outputs of the batch norm layers, in the order of the calls."""
        return {name: d for name, d in self.distributions.items() if name not in (EMBEDDINGS, LOGITS)}

    @property
    def embeddings(self) -> Distribution | None:
        """The input of the last linear layer."""
        return self.distributions.get(EMBEDDINGS)

    @property
    def logits(self) -> Distribution | None:
        """The output of the model."""
        return self.distributions.get(LOGITS)

    @property
    def confidence(self) -> Confidence | None:
        """The confidence of the predictions."""
        return self._confidence

    def bins(self, inside: int = BINS) -> dict[str, Bins]:
        """The bins of every histogram; for a distribution without one, bins over the range seen."""
        return {name: distribution.bins(inside) for name, distribution in self.distributions.items()}

    def merge(self, other: Profile) -> Profile:
        """The profile of everything that both have seen."""
        merged = Profile(bins=self._bins, covariance=self._covariance)
        for profile in (self, other):
            for name, distribution in profile.distributions.items():
                key = ((name, distribution.columns),)
                earlier = merged._groups.get(key)
                merged._groups[key] = distribution if earlier is None else earlier.merge(distribution)
        if self._confidence is not None and other._confidence is not None:
            merged._confidence = self._confidence.merge(other._confidence)
        else:
            merged._confidence = self._confidence or other._confidence
        merged.count = self.count + other.count
        merged.largest_batch = max(self.largest_batch, other.largest_batch)
        return merged

    def _own_group(self, name: str) -> str:
        """The name, if its covariance is kept, so that it cannot share a distribution with others; otherwise ""."""
        return name if name in (EMBEDDINGS, LOGITS) or name in self._covariance else ""

    def _distribution(self, columns: tuple[tuple[str, int], ...]) -> Distribution:
        if columns not in self._groups:
            bins = None
            if self._bins is not None:
                missing = [name for name, _ in columns if name not in self._bins]
                if missing:
                    raise DiagnosticError(f"The reference has no {missing[0]!r}: profile the same model on both.")
                bins = Bins.concatenate([self._bins[name] for name, _ in columns])
            self._groups[columns] = Distribution(bins=bins, covariance=bool(self._own_group(columns[0][0])))
        return self._groups[columns]


def profiles(
    model: nn.Module,
    batches: Iterable[Any],
    strategies: Sequence[str | Strategy] = ("train", "batch"),
    *,
    like: Profile | None = None,
    bins: int = BINS,
    outputs: Layers | None = "all",
    covariance: Collection[str] = (),
    embedding: str | None = None,
    forward: Forward | None = None,
    after_batch: Callable[[], object] | None = None,
    **options: Any,
) -> dict[str, Profile]:
    """One profile per strategy, from a single pass over the data: each batch is predicted under each strategy.

    `batches` are tensors, tuples that begin with one, or whatever else `predbn/norm/forward.py` has; they are moved to
    the model's device. The model is left exactly as it was, even after an error. Nothing waits for a GPU before a
    result is asked for.

    like         keep histograms, over the bins of this profile, or over `bins` of its ranges if it has none
    outputs      which batch norm layers to record, as `layers` of `predbn.adapt`; None for none, which is faster
    covariance   names of layers whose covariance to keep too; those of embeddings and logits always are
    embedding    the module whose input is the embedding; by default the last linear layer
    forward      called as forward(model, batch) to predict a batch, if the default does not fit
    after_batch  called after each batch
    options      for `predbn.adapt`, such as `layers` or `eps`; not for "train", which the others are compared with
    """
    recorders: dict[str, ActivationRecorder] = {}
    for strategy in strategies:
        adapt_options = _options_for(find_strategy(strategy), batches, options)
        recorders[str(strategy)] = ActivationRecorder(
            model, strategy, outputs=outputs, embedding=embedding, forward=forward, **adapt_options
        )
    shared_bins = None if like is None else like.bins(bins)
    result = {name: Profile(bins=shared_bins, covariance=covariance) for name in recorders}
    for batch in batches_of(batches):
        for name, recorder in recorders.items():
            result[name].update(recorder.run(batch))
        if after_batch is not None:
            after_batch()
    if any(profile.count == 0 for profile in result.values()):
        raise DiagnosticError("The data gave no batch: give at least one.")
    return result


def profile(model: nn.Module, batches: Iterable[Any], strategy: str | Strategy = "train", **options: Any) -> Profile:
    """The profile of one strategy; the options are those of `profiles`."""
    return next(iter(profiles(model, batches, (strategy,), **options).values()))


def _options_for(strategy: Strategy, batches: Iterable[Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options of `adapt` for one strategy; "population" gets the data itself as its loader."""
    if isinstance(strategy, Train):
        return {}
    if isinstance(strategy, Population) and "loader" not in options:
        if isinstance(batches, Iterator):
            raise DiagnosticError(
                "The batches can be read only once, but 'population' needs them before they are predicted: "
                "give a list or a loader."
            )
        return {**options, "loader": batches}
    return dict(options)


def _concatenate(values: dict[str, Tensor], names: list[str]) -> Tensor:
    return values[names[0]] if len(names) == 1 else torch.cat([values[name] for name in names], 1)
