"""Forward passes as CUDA graphs.

A small network on a large GPU waits for the host: launching the kernels of a ResNet-20 takes longer than running them.
A graph launches all of them at once. It always reads from and writes to the same memory, so images are copied into
static inputs first; all graphs of one input shape share them, and a batch is copied once for all graphs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UP = 3


def layout_of(inputs: Tensor) -> torch.memory_format:
    """The memory format in which networks get their inputs: channels last for pictures, as convolutions prefer it."""
    return torch.channels_last if inputs.ndim == 4 else torch.contiguous_format


class StaticInputs:
    """The tensors from which the graphs of one device read, and the memory pool that the graphs share."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[int, ...], Tensor] = {}
        self._content_ids: dict[tuple[int, ...], int] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def copy_in(self, images: Tensor) -> Tensor:
        """The static tensor of this shape, with these images in it. They are not copied if they are in it already."""
        shape = tuple(images.shape)
        if shape not in self._tensors:
            self._tensors[shape] = torch.empty_like(images, memory_format=layout_of(images))
        if self._content_ids.get(shape) != id(images):
            self._tensors[shape].copy_(images)
            self._content_ids[shape] = id(images)
        return self._tensors[shape]

    def invalidate(self) -> None:
        """Forget which images were copied. Call it before they can be freed, because an id may be used again."""
        self._content_ids.clear()


class GraphedFunction:
    """A function of images, recorded once per input shape. It must not keep state.

    If recording fails, the function is called as it is.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], inputs: StaticInputs) -> None:
        self._function, self._inputs = function, inputs
        self._graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._is_recordable = True

    def __call__(self, images: Tensor) -> Tensor:
        static = self._inputs.copy_in(images)
        shape = tuple(images.shape)
        if self._is_recordable and shape not in self._graphs:
            self._record(shape, static)
        if shape not in self._graphs:
            return self._function(static)
        graph, result = self._graphs[shape]
        graph.replay()
        return result.clone()

    def _record(self, shape: tuple[int, ...], static: Tensor) -> None:
        # CUDA wants a few plain calls on another stream before a capture.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._function(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._inputs.pool, capture_error_mode="thread_local"):
                result = self._function(static)
        except RuntimeError:
            self._is_recordable = False
            return
        self._graphs[shape] = graph, result
