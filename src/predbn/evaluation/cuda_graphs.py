"""Forward passes as CUDA graphs.

A small network on a large GPU waits for the host: the launches of a ResNet-20 take longer than its arithmetic. A graph
is launched once for all of them. It always reads and writes the same memory, so that images are copied to where it
looks for them; all graphs of one shape look at the same place, and a batch is copied there once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Desk", "Graphed", "layout_of"]

_WARM_UP = 3


def layout_of(inputs: Tensor) -> torch.memory_format:
    """The layout in which networks get their inputs: for pictures the one that convolutions like."""
    return torch.channels_last if inputs.ndim == 4 else torch.contiguous_format


class Desk:
    """Where the graphs of one device find their images, and the memory that they share while they run."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], Tensor] = {}
        self._on: dict[tuple[int, ...], int] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def put(self, images: Tensor) -> Tensor:
        """The place for images of this shape, with these in it. Images that are there already are not copied."""
        shape = tuple(images.shape)
        if shape not in self._places:
            self._places[shape] = torch.empty_like(images, memory_format=layout_of(images))
        if self._on.get(shape) != id(images):
            self._places[shape].copy_(images)
            self._on[shape] = id(images)
        return self._places[shape]

    def clear(self) -> None:
        """Forget which images are where: call it whenever they may have gone, for an id can come again."""
        self._on.clear()


class Graphed:
    """A function of images that keeps no state, recorded once for each shape; what cannot be recorded is called."""

    def __init__(self, function: Callable[[Tensor], Tensor], desk: Desk) -> None:
        self._function, self._desk = function, desk
        self._graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._recordable = True

    def __call__(self, images: Tensor) -> Tensor:
        place = self._desk.put(images)
        shape = tuple(images.shape)
        if self._recordable and shape not in self._graphs:
            self._record(shape, place)
        if shape not in self._graphs:
            return self._function(place)
        graph, result = self._graphs[shape]
        graph.replay()
        return result.clone()

    def _record(self, shape: tuple[int, ...], place: Tensor) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._function(place)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._desk.pool, capture_error_mode="thread_local"):
                result = self._function(place)
        except RuntimeError:
            self._recordable = False
            return
        self._graphs[shape] = graph, result
