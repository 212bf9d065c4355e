"""Has the data shifted, in which layers, and does prediction-time BN undo it?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from predbn.common import DiagnosticError, Progress
from predbn.norm import Forward, Strategy, Train, device_of, find_strategy, named_layers

from .diagnosis import Diagnosis
from .profile import BINS, profile, profiles


@runtime_checkable
class DataSet(Protocol):
    """A data set like those of `predbn.data`: `Images`, or a split of corrupted images."""

    def __len__(self) -> int:
        """The number of examples."""

    def batches(self, size: int, *, order: Any = None, device: Any = None) -> Iterator[Any]:
        """Batches of at most `size` examples, by default in the data set's own order."""


class _Batches:
    """The batches of a data set in a random order that stays the same, or the batches of a loader as they come."""

    def __init__(self, data: DataSet | Iterable[Any], size: int, device: Any, seed: int) -> None:
        self.data, self.size, self.device = [data] if isinstance(data, Tensor) else data, size, device
        self.order: Any = None
        if isinstance(data, DataSet):
            self.order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))

    def __iter__(self) -> Iterator[Any]:
        batches: Iterable[Any] = self.data  # type: ignore[assignment]
        if isinstance(self.data, DataSet):
            batches = self.data.batches(self.size, order=self.order, device=self.device)
        return iter(batches)

    def count(self) -> int:
        """The number of batches; 0 if it is not known."""
        if isinstance(self.data, DataSet):
            return -(-len(self.data) // self.size)
        try:
            return len(self.data)  # type: ignore[arg-type]
        except TypeError:
            return 0


def diagnose(
    model: nn.Module,
    reference: DataSet | Iterable[Any],
    shifted: DataSet | Iterable[Any],
    *,
    strategy: str | Strategy = "batch",
    batch_size: int = 100,
    device: torch.device | str | None = None,
    bins: int = BINS,
    embedding: str | None = None,
    forward: Forward | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Diagnosis:
    """Compare the activations of a model on shifted data with those on reference data, without labels.

    The reference is best a part of the training data. It is read twice: once for the ranges, which give every channel
    the bins that all histograms share, and once to count. The shifted data is read once. Both are predicted with the
    training statistics and with `strategy`.

    Data sets of `predbn.data` are read in a random order that depends on `seed`, so that no batch consists of one
    class; loaders and lists of batches (tensors, or tuples that begin with one) are taken as they come.
    A tensor is one batch.

    device     move the model to this device; by default it stays where it is
    bins       number of bins over the reference's range of a channel
    embedding  the module whose input is the embedding; by default the last linear layer
    forward    called as forward(model, batch) to predict a batch, if the default does not fit
    progress   called with (batches done, batches in total; 0 if the number is not known)
    options    for `predbn.adapt`, such as `layers` or `eps`
    """
    chosen = find_strategy(strategy)
    if isinstance(chosen, Train):
        raise DiagnosticError("The strategy is train, which every other is compared with: name another, such as batch.")
    if isinstance(reference, Iterator):
        raise DiagnosticError("The reference can be read only once, but is needed twice: give a list or a loader.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise DiagnosticError(f"batch_size is {batch_size!r}, but a batch has a whole number of examples, 1 or more.")
    if device is not None:
        model.to(device)
    reference_batches, shifted_batches = (
        _Batches(data, batch_size, device_of(model), seed) for data in (reference, shifted)
    )
    total, done = 2 * reference_batches.count() + shifted_batches.count(), 0

    def after_batch() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    recording: dict[str, Any] = {
        "embedding": embedding,
        "forward": forward,
        "after_batch": after_batch,
        "bins": bins,
    }
    ranges = profile(model, reference_batches, **recording)
    has_batch_norm = next(named_layers(model), None) is not None
    strategies: list[str | Strategy] = ["train", chosen] if has_batch_norm else ["train"]
    on_reference, on_shifted = (
        profiles(model, batches, strategies, like=ranges, **recording, **options)
        for batches in (reference_batches, shifted_batches)
    )
    name = str(chosen)
    return Diagnosis(
        reference=on_reference["train"],
        reference_after=on_reference.get(name),
        before=on_shifted["train"],
        after=on_shifted.get(name),
        strategy=name,
        batch_size=on_shifted["train"].largest_batch,
    )
