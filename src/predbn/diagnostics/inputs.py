"""The batch norm layers of a model, and what they get to see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from predbn.models import Classifier
from predbn.norm import named_layers


def name_prefix(model: nn.Module) -> str:
    """The part of all layer names that a user does not know: the name of a classifier's network."""
    return "network." if isinstance(model, Classifier) else ""


def layers_by_name(model: nn.Module) -> dict[str, Any]:
    """The batch norm layers by the names that their user knows, in the order of registration."""
    return {name.removeprefix(name_prefix(model)): layer for name, layer in named_layers(model)}


@contextmanager
def observing_inputs(layers: Mapping[str, nn.Module], observe: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Call `observe` with the name and the input of a layer whenever it is called."""

    def hook_of(name: str) -> Callable[..., None]:
        return lambda layer, args, kwargs: observe(name, args[0] if args else next(iter(kwargs.values())))

    with ExitStack() as stack:
        for name, layer in layers.items():
            stack.callback(layer.register_forward_pre_hook(hook_of(name), with_kwargs=True).remove)
        yield


def example_moments(x: Tensor, examples: int) -> tuple[Tensor, Tensor]:
    """The mean and the mean square of each example and channel, [N, C] each, of an input of shape [rows, C, ...].

    An example may have several rows, such as the proposals of a detector; they are averaged.
    """
    wide = x.detach() if x.dtype == torch.float64 else x.detach().float()
    dims = tuple(range(2, x.dim()))
    means = wide.mean(dims) if dims else wide
    norms = torch.linalg.vector_norm(wide, dim=dims) if dims else wide
    squares = norms.double().square() / x[:1, :1].numel()
    rows = len(x) // examples if examples and len(x) % examples == 0 else 1
    if rows > 1:
        means, squares = (values.unflatten(0, (-1, rows)).mean(1) for values in (means, squares))
    return means, squares
