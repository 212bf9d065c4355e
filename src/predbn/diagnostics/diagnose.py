"""Has the data shifted, in which layers, does prediction-time BN bring it back?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from predbn.common import DiagnosticError
from predbn.norm import Strategy, Train, device_of, named_layers
from predbn.norm import find_strategy as find

from .diagnosis import Diagnosis
from .profile import BINS, profile, profiles

__all__ = ["Batched", "diagnose"]


@runtime_checkable
class Batched(Protocol):
    """A data set as `predbn.data` has them: `Images`, or a split of corrupted ones."""

    def __len__(self) -> int:
        """How many examples there are."""

    def batches(self, size: int, *, order: Any = None, device: Any = None) -> Iterator[Any]:
        """Batches of at most `size` examples in an order of positions."""


class _Drawn:
    """A data set in an order drawn once, as often as one likes; a set of one's own as it comes."""

    def __init__(self, data: Batched | Iterable[Any], size: int, device: Any, seed: int) -> None:
        self.data, self.size, self.device = data, size, device
        self.largest = 0
        self.order: Any = None
        if isinstance(data, Batched):
            self.order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))

    def __iter__(self) -> Iterator[Any]:
        own = self.data
        stream = own.batches(self.size, order=self.order, device=self.device) if isinstance(own, Batched) else own
        for batch in stream:
            first = batch[0] if isinstance(batch, tuple | list) else batch
            self.largest = max(self.largest, len(first))
            yield batch

    def steps(self) -> int:
        """How many batches there are; 0 where nobody knows."""
        if isinstance(self.data, Batched):
            return -(-len(self.data) // self.size)
        try:
            return len(self.data)  # type: ignore[arg-type]
        except TypeError:
            return 0


def diagnose(
    model: nn.Module,
    reference: Batched | Iterable[Any],
    shifted: Batched | Iterable[Any],
    *,
    strategy: str | Strategy = "batch",
    batch_size: int = 100,
    device: torch.device | str | None = None,
    bins: int = BINS,
    embedding: str | None = None,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> Diagnosis:
    """Compare the inside of a model on shifted data with that on reference data, without labels.

    The reference, best a part of the training data, is gone through twice: once for the ranges, which give every
    channel the bins that all histograms share, and once to count. The shifted data is gone through once. Both are
    predicted with the training statistics and with `strategy`.

    Data sets of `predbn.data` are drawn in a random order that follows from `seed`, so that no batch holds one class
    alone; loaders and lists of batches (tensors, or tuples that begin with one) are taken as they come.

    device     where to predict, unless it is where the model is already; the model is moved there
    bins       bins over the reference's range of a channel
    embedding  the module whose input is the embedding; the last linear layer unless given
    progress   called with (batches done, batches in all; 0 where the data does not know its length)
    options    for `predbn.adapt`, such as `layers` or `eps`
    """
    name = str(find(strategy))
    if isinstance(find(strategy), Train):
        raise DiagnosticError("The strategy is train, which every other is compared with: name another, such as batch.")
    if isinstance(reference, Iterator):
        raise DiagnosticError(
            "The reference can be gone through only once, but is needed twice: give a list or a loader."
        )
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise DiagnosticError(f"batch_size is {batch_size!r}, but a batch has a whole number of examples, 1 or more.")
    if device is not None:
        model.to(device)
    place = device_of(model)
    known, new = (_Drawn(data, batch_size, place, seed) for data in (reference, shifted))
    total, done = 2 * known.steps() + new.steps(), 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    watching: dict[str, Any] = {"embedding": embedding, "progress": count, "bins": bins}
    ranges = profile(model, known, **watching)
    wanted: list[str | Strategy] = (
        ["train", find(strategy)] if next(named_layers(model), None) is not None else ["train"]
    )
    on_known, on_new = (profiles(model, data, wanted, like=ranges, **watching, **options) for data in (known, new))
    return Diagnosis(
        reference=on_known["train"],
        settled=on_known.get(name),
        before=on_new["train"],
        after=on_new.get(name),
        strategy=name,
        batch_size=new.largest,
    )
