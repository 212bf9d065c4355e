"""Logits of one or several models on labelled batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import MethodError
from predbn.norm import Population, Strategy, adapted, device_of, modules_of


def member_logits(models: Sequence[nn.Module], images: Tensor) -> list[Tensor]:
    """The logits of each model on the same batch, on the device of the first model."""
    logits: list[Tensor] = []
    for model in models:
        device = device_of(model)
        output = model(images if device is None else images.to(device))
        logits.append(output.to(logits[0].device) if logits else output)
    return logits


def labelled_logits(models: Sequence[nn.Module], batches: Iterable[Any]) -> Iterator[tuple[list[Tensor], Tensor]]:
    """(the logits of each model, labels) for every batch; a batch starts with images and labels."""
    is_empty = True
    for batch in batches:
        if not isinstance(batch, tuple | list) or len(batch) < 2 or not all(isinstance(t, Tensor) for t in batch[:2]):
            raise MethodError(
                f"Expected batches to be tuples that start with images and labels, but got {type(batch).__name__}"
            )
        logits = member_logits(models, batch[0])
        yield logits, batch[1].to(logits[0].device)
        is_empty = False
    if is_empty:
        raise MethodError("Expected at least one batch of validation data, but got none")


@contextmanager
def predicting(
    models: Sequence[nn.Module], batches: Iterable[Any], strategy: str | Strategy, **options: Any
) -> Iterator[None]:
    """Adapt the models, in `.eval()` mode and without gradients, and restore them afterwards whatever happens.

    `options` are passed to `predbn.adapt`. If no loader is given, "population" uses the images of the batches.
    """
    if "loader" not in options and _is_population(strategy):
        if isinstance(batches, Iterator):
            raise MethodError(
                "Expected batches that can be iterated over twice for 'population', but got an iterator; give a list"
            )
        options["loader"] = batches
    modes = [(module, module.training) for model in models for module in modules_of(model)]
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(adapted(model, strategy, **options))
        try:
            for model in models:
                model.eval()
            with torch.no_grad():
                yield
        finally:
            for module, training in modes:
                module.training = training


def _is_population(strategy: str | Strategy) -> bool:
    """Whether this is the strategy `population`; `adapt` reports unknown names."""
    if isinstance(strategy, str):
        return strategy.partition("(")[0].strip() == Population.name
    return isinstance(strategy, Population)
