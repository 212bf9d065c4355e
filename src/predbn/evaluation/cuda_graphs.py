"""Forward passes as CUDA graphs, several networks at the same time.

Each kernel of a small network fills a part of the GPU only: with 16 channels, cuDNN's batch norm uses 16 of 132
multiprocessors. The graphs of different networks are therefore replayed on different CUDA streams, so that the kernels
of one fill what those of another leave free.

A graph always reads from and writes to the same memory. Images are copied into static inputs first; all graphs of one
stream and one input shape share them, and a batch is copied once for all of these. The graphs of a stream also share
the memory of their intermediate results, because they never run at the same time. Nothing is shared between streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from predbn.gpu import CudaGraphRecorder

STREAMS = 4
"""CUDA streams for the graphs of one device. Each has memory of its own for intermediate results."""

_LARGE_PASS = 1 << 23
"""Input values of a pass that fills a GPU: all such passes are on one stream, and their memory is taken once."""


def layout_of(inputs: Tensor) -> torch.memory_format:
    """The memory format in which networks get their inputs: channels last for pictures, as convolutions prefer it."""
    return torch.channels_last if inputs.ndim == 4 else torch.contiguous_format


class GraphStream:
    """A CUDA stream, the tensors from which its graphs read, and the recorder whose memory they share."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)
        self.recorder = CudaGraphRecorder(self.stream)
        self._tensors: dict[tuple[int, ...], Tensor] = {}
        self._copied: dict[tuple[int, ...], Tensor] = {}

    def copy_in(self, images: Tensor) -> Tensor:
        """The static tensor of this shape, with these images in it. They are not copied if they are in it already."""
        shape = tuple(images.shape)
        if shape not in self._tensors:
            self._tensors[shape] = torch.empty_like(images, memory_format=layout_of(images))
        if self._copied.get(shape) is not images:
            self._tensors[shape].copy_(images)
            self._copied[shape] = images
        return self._tensors[shape]

    def forget_images(self) -> None:
        """Forget which images were copied, so that their memory can be freed."""
        self._copied.clear()

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        """Do work on this stream, inside of `GraphStreams.running`. The result may be used when that has ended."""
        user = torch.cuda.current_stream(self.stream.device)
        with torch.cuda.stream(self.stream):
            result = work()
        # The allocator may reuse the memory only when the stream that uses the result is done with it, too.
        result.record_stream(user)
        return result


class GraphStreams:
    """The streams on which the graphs of one device are replayed, at least one."""

    def __init__(self, device: torch.device, count: int) -> None:
        self._device = device
        self._streams = [GraphStream(device) for _ in range(count)]
        self._kinds: list[Counter[Hashable]] = [Counter() for _ in self._streams]

    def choose(self, kind: Hashable, values: int) -> GraphStream:
        """The stream for one more function, whose passes have so many input values.

        Functions of the same kind take equally long; each stream gets equally many of every kind.
        """
        if values >= _LARGE_PASS:
            return self._streams[0]
        number = min(range(len(self._streams)), key=lambda i: (self._kinds[i][kind], self._kinds[i].total()))
        self._kinds[number][kind] += 1
        return self._streams[number]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, what is done on the streams comes after all that is queued on the current one; afterwards, the
        current one waits for it."""
        user = torch.cuda.current_stream(self._device)
        for graph_stream in self._streams:
            graph_stream.stream.wait_stream(user)
        try:
            yield
        finally:
            for graph_stream in self._streams:
                user.wait_stream(graph_stream.stream)

    def forget_images(self) -> None:
        """Forget which images were copied, on all streams."""
        for graph_stream in self._streams:
            graph_stream.forget_images()


class GraphedFunction:
    """A function of images, recorded once per input shape. It must not keep state.

    If recording fails, the function is called as it is.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], graph_stream: GraphStream) -> None:
        self._function, self._graph_stream = function, graph_stream
        self._graphs: dict[tuple[int, ...], tuple[Callable[[], None], Tensor]] = {}
        self._is_recordable = True

    def __call__(self, images: Tensor) -> Tensor:
        static = self._graph_stream.copy_in(images)
        shape = tuple(images.shape)
        if self._is_recordable and shape not in self._graphs:
            try:
                self._graphs[shape] = self._graph_stream.recorder.record(lambda: self._function(static))
            except RuntimeError:
                self._is_recordable = False
        if shape not in self._graphs:
            return self._function(static)
        replay, result = self._graphs[shape]
        replay()
        return result.clone()
