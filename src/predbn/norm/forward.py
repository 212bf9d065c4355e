"""How a model is called with the batches of a loader, whatever they are: tensors, tuples, dictionaries, dataclasses.

| a batch is | the model is called with |
|---|---|
| a tensor | the tensor |
| a tuple or a list, such as (images, labels) | its first part, or as many parts as `forward` requires |
| a dictionary or a dataclass | by keyword, those of its entries that `forward` has parameters for |
| the same, but `forward` does not name its entries | the batch itself, as one argument |

Everything else is up to a function of the user, ``forward=lambda model, batch: …``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from predbn.common import AdaptationError

from .layers import device_of, unwrapped

Forward: TypeAlias = Callable[[nn.Module, Any], Any]
"""Predicts a batch of a loader: called with the model and the batch."""

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""What a model is called with: positional and keyword arguments."""


class Wrapper(nn.Module):
    """A module that calls `model` with the arguments that it is called with."""

    model: nn.Module


class BatchForward:
    """Calls a model with batches, which are moved to its device first.

    The model inside of DistributedDataParallel is called, because the wrapper broadcasts buffers in every call, and
    processes with fewer batches than others would keep these waiting.
    """

    def __init__(self, model: nn.Module, forward: Forward | None = None) -> None:
        if forward is not None and not callable(forward):
            raise AdaptationError(
                f"forward is a {type(forward).__name__}; give a function of the model and a batch, such as "
                "lambda model, batch: model(batch['image'])"
            )
        self.model = unwrapped(model)
        self._forward = forward
        self._device = device_of(model)
        self._parameters = _parameters(self.model)
        self.examples = 0
        """How many examples the last batch had, as far as its first tensor tells."""

    def __call__(self, batch: Any) -> Any:
        return self.call(self.arguments(batch))

    def call(self, arguments: Arguments) -> Any:
        """Predict with arguments that `arguments` gave, perhaps those of several batches put together."""
        args, kwargs = arguments if self._device is None else _to_device(arguments, self._device)
        self.examples = count_examples((*args, *kwargs.values()))
        return self.model(*args, **kwargs) if self._forward is None else self._forward(self.model, *args)

    def arguments(self, batch: Any) -> Arguments:
        """What the model is called with, by the table above; a function of the user is called with the batch."""
        if self._forward is not None:
            return (batch,), {}
        required = [p.name for p in self._parameters if p.default is p.empty and p.kind in _NAMED]
        value = batch
        if isinstance(batch, tuple | list):
            parts = tuple(batch[: max(1, len(required))])
            if len(parts) > 1:
                return _with_tensors(batch, parts, {})
            value = parts[0] if parts else None
        entries = entries_of(value)
        if entries is not None:
            takes_all = any(p.kind is p.VAR_KEYWORD for p in self._parameters)
            names = {p.name for p in self._parameters if p.kind in _NAMED}
            chosen = {name: entry for name, entry in entries.items() if takes_all or name in names}
            if chosen and all(name in chosen for name in required):
                return _with_tensors(batch, (), chosen)
        return _with_tensors(batch, (value,), {})


def batches_of(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loader. A tensor is one batch, not a batch per example."""
    if not isinstance(loader, Iterable):
        raise AdaptationError(
            f"the loader is a {type(loader).__name__}; give batches: a DataLoader, a list or a generator"
        )
    return iter([loader] if isinstance(loader, Tensor) else loader)


def entries_of(value: Any) -> dict[str, Any] | None:
    """The entries of a dictionary or a dataclass by name; None for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def count_examples(value: Any) -> int:
    """How many examples a batch has: the rows of its first tensor, or the images of a list such as a detector takes.

    Tensors of different dimensions, such as [images, labels], are no list of images. A single row next to more of them
    is an option of the model. 0 if there is no tensor.
    """
    if isinstance(value, Tensor):
        return value.shape[0] if value.dim() else 1
    entries = entries_of(value)
    dimensions = {item.dim() if isinstance(item, Tensor) else None for item in value} if type(value) is list else set()
    if len(dimensions) == 1 and None not in dimensions:
        return len(value)
    if entries is None and not isinstance(value, tuple | list):
        return 0
    counts = [n for n in map(count_examples, value if entries is None else entries.values()) if n]
    return next((n for n in counts if n > 1), len(counts[:1]))


_NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


def _parameters(model: nn.Module) -> list[inspect.Parameter]:
    """Those of `forward`; none if they cannot be known."""
    while isinstance(model, Wrapper):
        model = unwrapped(model.model)
    try:
        return list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return []


def _with_tensors(batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments, checked to contain something that a model can take."""
    leaves = tree_leaves((args, kwargs))
    if not any(isinstance(leaf, Tensor) or hasattr(leaf, "to") or entries_of(leaf) for leaf in leaves):
        kind = type(args[0] if args else batch).__name__
        raise AdaptationError(
            f"the loader gave a {kind} without tensors; give tensors, tuples that begin with one, or dictionaries of "
            "tensors, or say with forward=lambda model, batch: … how the model is called"
        )
    return args, kwargs


def _to_device(value: Any, device: torch.device) -> Any:
    def move(leaf: Any) -> Any:
        if callable(getattr(leaf, "to", None)):
            return leaf.to(device)
        entries = entries_of(leaf)
        if entries is None:
            return leaf
        moved = {name: _to_device(entry, device) for name, entry in entries.items()}
        if isinstance(leaf, Mapping):
            return moved
        fields = {field.name for field in dataclasses.fields(leaf) if field.init}
        return dataclasses.replace(leaf, **{name: entry for name, entry in moved.items() if name in fields})

    return tree_map(move, value)
