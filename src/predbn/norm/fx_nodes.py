"""Nodes of the graphs that torch.compile records: what they are, and how they are replaced."""

from __future__ import annotations

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


def layer_of(node: fx.Node) -> str:
    """The name of the layer that a node belongs to: L['self'].layer1[0].bn1 is layer1.0.bn1."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next((str(place[0]) for place in reversed(list(stack.values()))), node.name)
    return ".".join(_parts(path))


def _parts(path: str) -> Iterator[str]:
    path = re.sub(r"^L\['\w+'\]", "", path).replace("._modules", "")
    return (part for part in re.split(r"[.\[\]'\"]+", path) if part not in ("", "_orig_mod"))
