"""Everything that is known of the inside of a model on one set of data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import DiagnosticError
from predbn.norm import Layers, Population, Strategy, Train, device_of
from predbn.norm import find_strategy as find

from .confidence import Confidence
from .distribution import Distribution
from .histogram import Bins
from .watch import Pass, Watch

__all__ = ["BINS", "EMBEDDINGS", "LOGITS", "Profile", "Progress", "profile", "profiles"]

BINS = 64
EMBEDDINGS = "embeddings"
LOGITS = "logits"

Progress = Callable[[], object]


class Profile:
    """The distributions inside a model, over all batches that it was updated with.

    `layers` has the outputs of the batch norm layers (spatial means, before the non-linearity) by name, in the
    order in which they are called; `embeddings` what the last linear layer takes, `logits` what it gives, both with
    covariances, or None where the model has no such thing; `confidence` a histogram of how sure it is. Layers seen
    in as many rows are kept side by side while data comes in, so that a batch costs a few operations, not a few
    for each layer.
    """

    def __init__(self, *, bins: dict[str, Bins] | None = None, covariance: Collection[str] = ()) -> None:
        self._bins = bins
        self._covariance = frozenset(covariance)
        self._groups: dict[tuple[tuple[str, int], ...], Distribution] = {}
        self._confidence: Confidence | None = None
        self.count = 0

    def update(self, seen: Pass, rows: int) -> None:
        """Add what was seen of a batch of so many examples."""
        self.__dict__.pop("distributions", None)
        values = dict(seen.layers)
        for name, found in ((EMBEDDINGS, seen.embeddings), (LOGITS, seen.logits)):
            if found is not None:
                values[name] = found
        for _, group in groupby(values, lambda name: (len(values[name]), self._alone(name))):
            names = list(group)
            self._group(tuple((name, values[name].shape[1]) for name in names)).update(_beside(values, names))
        if seen.logits is not None:
            self._confidence = self._confidence or Confidence()
            self._confidence.update(seen.logits)
        self.count += rows

    @cached_property
    def distributions(self) -> dict[str, Distribution]:
        """Every distribution by name, on the CPU: the layers, then embeddings and logits."""
        found: dict[str, Distribution] = {}
        for columns, group in self._groups.items():
            host = group.cpu()
            for (name, width), end in zip(columns, accumulate(width for _, width in columns), strict=True):
                part = host.take(slice(end - width, end))
                found[name] = found[name].merge(part) if name in found else part
        for name, one in found.items():
            if not bool(one.gaussian.mean.isfinite().all()):
                raise DiagnosticError(
                    f"{name} gave values that are not finite, so there is no distribution to speak of: check the "
                    "model's weights and inputs, or use a wider dtype."
                )
        return found

    @property
    def layers(self) -> dict[str, Distribution]:
        """The outputs of the batch norm layers, in the order of the calls."""
        return {name: one for name, one in self.distributions.items() if name not in (EMBEDDINGS, LOGITS)}

    @property
    def embeddings(self) -> Distribution | None:
        """What the last linear layer takes."""
        return self.distributions.get(EMBEDDINGS)

    @property
    def logits(self) -> Distribution | None:
        """What the model gives."""
        return self.distributions.get(LOGITS)

    @property
    def confidence(self) -> Confidence | None:
        """How sure the model is."""
        return self._confidence

    def bins(self, inside: int = BINS) -> dict[str, Bins]:
        """The bins of every histogram here, or where there is none yet, bins over the range seen."""
        return {name: one.bins(inside) for name, one in self.distributions.items()}

    def merge(self, other: Profile) -> Profile:
        """The profile of all that both have seen."""
        merged = Profile(bins=self._bins, covariance=self._covariance)
        for part in (self, other):
            for name, one in part.distributions.items():
                key = ((name, one.columns),)
                merged._groups[key] = merged._groups[key].merge(one) if key in merged._groups else one
        sides = [one for one in (self._confidence, other._confidence) if one is not None]
        if sides:
            merged._confidence = sides[0] if len(sides) == 1 else sides[0].merge(sides[1])
        merged.count = self.count + other.count
        return merged

    def _alone(self, name: str) -> str:
        """A name for what cannot be kept side by side with others, since its columns' products are kept too."""
        return name if name in (EMBEDDINGS, LOGITS) or name in self._covariance else ""

    def _group(self, columns: tuple[tuple[str, int], ...]) -> Distribution:
        if columns not in self._groups:
            bins = None
            if self._bins is not None:
                missing = [name for name, width in columns if name not in self._bins]
                if missing:
                    raise DiagnosticError(f"The reference has no {missing[0]!r}: profile the same model on both.")
                bins = Bins.beside([self._bins[name] for name, _ in columns])
            self._groups[columns] = Distribution(bins=bins, covariance=bool(self._alone(columns[0][0])))
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
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Profile]:
    """One profile a strategy, from a single pass over the data: each batch is predicted under each of them.

    `batches` are tensors, or tuples that begin with one; they go to the model's device. The model is left exactly as
    it was, whatever happens. Nothing waits for a GPU before a result is asked for.

    like        keep histograms, over the bins of this profile or, where it has none, `bins` over its ranges
    outputs     which batch norm layers to look at, as `layers` of `predbn.adapt`; None for none, which is faster
    covariance  names of layers whose covariance to keep too; those of embeddings and logits always are
    embedding   the module whose input is the embedding; the last linear layer unless given
    progress    called after each batch
    options     for `predbn.adapt`, such as `layers` or `eps`; not for "train", which the others are compared with
    """
    watches: dict[str, Watch] = {}
    for strategy in strategies:
        chosen = find(strategy)
        more = {} if isinstance(chosen, Train) else dict(options)
        if isinstance(chosen, Population) and "loader" not in more:
            if isinstance(batches, Iterator):
                raise DiagnosticError(
                    "The batches can be gone through only once, and 'population' needs them before they are predicted: "
                    "give a list or a loader."
                )
            more["loader"] = batches
        watches[str(strategy)] = Watch(model, strategy, outputs=outputs, embedding=embedding, **more)
    common = None if like is None else like.bins(bins)
    found = {name: Profile(bins=common, covariance=covariance) for name in watches}
    device = device_of(model)
    for batch in batches:
        x = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(x, Tensor):
            raise DiagnosticError(
                f"A batch is a {type(x).__name__}, but it must be a tensor or a tuple that begins with one: wrap the "
                "data in a generator that picks the input out."
            )
        x = x if device is None else x.to(device, non_blocking=True)
        for name, watch in watches.items():
            found[name].update(watch.run(x), len(x))
        if progress is not None:
            progress()
    if any(one.count == 0 for one in found.values()):
        raise DiagnosticError("The data gave no batch: give at least one.")
    return found


def profile(model: nn.Module, batches: Iterable[Any], strategy: str | Strategy = "train", **options: Any) -> Profile:
    """The profile of one strategy; the options are those of `profiles`."""
    return next(iter(profiles(model, batches, (strategy,), **options).values()))


def _beside(values: dict[str, Tensor], names: list[str]) -> Tensor:
    return values[names[0]] if len(names) == 1 else torch.cat([values[name] for name in names], 1)
