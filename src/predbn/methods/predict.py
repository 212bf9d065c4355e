"""Logits of one or several models on labelled batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import MethodError
from predbn.norm import Population, Strategy, adapted, device_of
from predbn.norm import find_strategy as find


def member_logits(models: Sequence[nn.Module], images: Tensor) -> list[Tensor]:
    """Each model's logits on the very same batch, on the first one's device."""
    logits: list[Tensor] = []
    for model in models:
        device = device_of(model)
        found = model(images if device is None else images.to(device))
        logits.append(found.to(logits[0].device) if logits else found)
    return logits


def labelled_logits(models: Sequence[nn.Module], batches: Iterable[Any]) -> Iterator[tuple[list[Tensor], Tensor]]:
    """(each model's logits, labels) of every batch; batches begin with images and labels."""
    empty = True
    for batch in batches:
        if not isinstance(batch, tuple | list) or len(batch) < 2 or not all(isinstance(t, Tensor) for t in batch[:2]):
            raise MethodError(f"a batch is a {type(batch).__name__}; give tuples that begin with images and labels")
        logits = member_logits(models, batch[0])
        yield logits, batch[1].to(logits[0].device)
        empty = False
    if empty:
        raise MethodError("the validation data gave no batch; give at least one")


@contextmanager
def predicting(
    models: Sequence[nn.Module], batches: Iterable[Any], strategy: str | Strategy, **options: Any
) -> Iterator[None]:
    """The models adapted, in `.eval()` mode and without gradients; then as they were, whatever happened.

    `options` go to `adapt`. The statistics of "population" are those of the batches' images unless a
    loader is given.
    """
    if "loader" not in options and isinstance(_found(strategy, options), Population):
        if isinstance(batches, Iterator):
            raise MethodError(
                "the batches can be gone through only once, and 'population' needs them before they are predicted; "
                "give a list or a loader"
            )
        options["loader"] = batches
    flags = [(module, module.training) for model in models for module in model.modules()]
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(adapted(model, strategy, **options))
        try:
            for model in models:
                model.eval()
            with torch.no_grad():
                yield
        finally:
            for module, training in flags:
                module.training = training


def _found(strategy: str | Strategy, options: dict[str, Any]) -> Strategy:
    of_adapt = {"layers", "eps", "sync", "process_group", "loader", "progress"}
    return find(strategy, **{name: value for name, value in options.items() if name not in of_adapt})
