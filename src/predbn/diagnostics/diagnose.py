"""What does a shift do inside a network, layer by layer, and does prediction-time BN undo it?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from predbn.common import DiagnosticError, Progress
from predbn.norm import Forward, Strategy, Train, device_of, find_strategy, named_layers

from .batches import Batches, DataSet
from .diagnosis import Diagnosis
from .profile import BINS, profile, profiles


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
        Batches(data, batch_size, device_of(model), seed) for data in (reference, shifted)
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
