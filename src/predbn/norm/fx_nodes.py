"""Nodes of the graphs that torch.compile records: what they are, and how they are replaced."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor, fx


def is_conv(node: Any) -> TypeGuard[fx.Node]:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is torch.conv2d


def example_value(node: Any) -> Tensor | None:
    """A fake tensor with the shape, dtype and device of what a node computes; None if it is not known."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value if isinstance(value, Tensor) else None


def argument(node: fx.Node, index: int, name: str, default: Any) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def pair(value: Any) -> Any:
    """An argument of a convolution for height and width; a text stays as it is."""
    if isinstance(value, int):
        return value, value
    return tuple(value) * (2 if len(value) == 1 else 1) if isinstance(value, list | tuple) else value


def only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def is_row(node: fx.Node) -> bool:
    """Whether it is one number for each channel, in single precision."""
    value = example_value(node)
    return value is not None and value.dim() == 1 and value.dtype == torch.float32


def is_channels_last(node: Any) -> bool:
    value = example_value(node)
    return value is not None and value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)


def in_channels_last(graph: fx.Graph, x: Any) -> fx.Node:
    """The same values in channels_last. Where symbolic sizes hide the layout of a tensor, it has it already."""
    if is_channels_last(x):
        return x  # type: ignore[no-any-return]
    return graph.call_method("contiguous", (x,), {"memory_format": torch.channels_last})


def replace_parts(graph: fx.Graph, node: fx.Node, parts: Sequence[fx.Node]) -> None:
    """Replace each of the results of a node that returns several, and the node with them."""
    for user in list(node.users):
        user.replace_all_uses_with(parts[user.args[1]])  # type: ignore[index]
        graph.erase_node(user)
    graph.erase_node(node)


def is_mixed(moments: fx.Node) -> bool:
    return moments.target is torch.ops.predbn.mixed_moments.default


def is_given(value: Any) -> bool:
    """Whether an argument is known before the graph runs: a tensor or a number, which may be read from a tensor."""
    if not isinstance(value, fx.Node) or value.op in ("placeholder", "get_attr"):
        return True
    return value.target in ("item", torch.sym_float) and all(map(is_given, value.args))


def mixing_of(graph: fx.Graph, moments: fx.Node) -> tuple[Any, ...]:
    """What the moments of a node are mixed with, for an operator that returns what `mixed_moments` does.

    All of it is given, but may stand in the graph after the place where nodes are inserted, so it is repeated there.
    """

    def here(value: Any) -> Any:
        is_computed = isinstance(value, fx.Node) and value.op != "placeholder"
        return graph.node_copy(value, here) if is_computed else value

    if is_mixed(moments):
        return tuple(map(here, moments.args[1:]))
    from .gpu.mixed_moments import Mixing

    return tuple(Mixing())


def replace_moments(graph: fx.Graph, moments: fx.Node, found: fx.Node) -> None:
    """Replace `mixed_moments`, or `moments` of a single group, by what another operator has found, [6, C]."""
    if not is_mixed(moments):
        with graph.inserting_before(moments):
            first = graph.call_function(operator.getitem, (found, slice(2)))
            found = graph.call_method("unsqueeze", (first, 1))
    moments.replace_all_uses_with(found)
    graph.erase_node(moments)


def layer_of(node: fx.Node) -> str:
    """The name of the layer that a node belongs to: L['self'].layer1[0].bn1 is layer1.0.bn1."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next((str(place[0]) for place in reversed(list(stack.values()))), node.name)
    return ".".join(_parts(path))


def _parts(path: str) -> Iterator[str]:
    path = re.sub(r"^L\['\w+'\]", "", path).replace("._modules", "")
    return (part for part in re.split(r"[.\[\]'\"]+", path) if part not in ("", "_orig_mod"))
