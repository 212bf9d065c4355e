"""Record what a function does on a GPU as a CUDA graph: the only place of the package that does.

A small network on a large GPU waits for the host: launching its kernels one by one takes longer than running them. A
graph launches all of them at once. It always reads from and writes to the same memory, so that everything that changes
from one replay to the next has to be in tensors that are overwritten in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")

WARM_UP = 3
"""CUDA needs a few plain calls on another stream than the default one before a capture."""


def is_recording() -> bool:
    """Whether a CUDA graph is being recorded on the current stream: nothing can be read, timed or built then."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class CudaGraphRecorder:
    """Records functions as graphs that are never replayed at the same time, so that they share their memory.

    What a graph has computed is therefore valid until another one is replayed. They are recorded on `stream`, because
    libraries have one workspace per stream: graphs that are replayed on a stream of their own are also recorded there.
    Without one it is a new stream.
    """

    def __init__(self, stream: torch.cuda.Stream | None = None) -> None:
        self._stream = stream
        self._pool: Any = None

    def can_record(self, inputs: tuple[Any, ...]) -> bool:
        """Whether a function of these inputs runs on a GPU, and is not being recorded already."""
        return all(type(value) is Tensor and value.is_cuda for value in inputs) and not is_recording()

    def record(self, run: Callable[[], R], warm_up: Callable[[], object] | None = None) -> tuple[Callable[[], None], R]:
        """A function that runs it again, and the result, which is then replaced in place.

        `run` is called a few times before (or `warm_up` is in its place), and may leave nothing behind that the graph
        would have to do again.
        """
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        stream, current = self._stream, torch.cuda.current_stream(self._stream.device)
        graph = torch.cuda.CUDAGraph()
        # Casts of parameters must happen in the graph: autocast would keep them in memory that the graph reuses.
        is_caching = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP):
                    (warm_up or run)()
                with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
                    result = run()
        finally:
            current.wait_stream(stream)
            torch.set_autocast_cache_enabled(is_caching)
        return graph.replay, result
