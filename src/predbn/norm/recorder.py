"""Record what a function launches on a GPU as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

R = TypeVar("R")

_WARM_UP = 2


class CudaRecorder:
    """Records the passes of one model. Its graphs share their memory, because they never run at the same time.

    So what a graph has computed is valid until another one is replayed.
    """

    def __init__(self) -> None:
        self._pool: Any = None

    def can_record(self, inputs: tuple[Any, ...]) -> bool:
        """Whether a pass with these inputs runs on a GPU, and is not being recorded already."""
        is_on_gpu = all(type(value) is Tensor and value.is_cuda for value in inputs)
        return is_on_gpu and not torch.cuda.is_current_stream_capturing()

    def record(self, run: Callable[[], R]) -> tuple[Callable[[], None], R]:
        """A function that runs it again, and the result, which is then replaced in place.

        `run` is called a few times before, and may leave nothing behind that the graph would have to do again.
        """
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Casts of parameters must happen in the graph: autocast would keep them in memory that it frees.
        is_caching = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # CUDA wants a few plain calls on another stream before a capture
                for _ in range(_WARM_UP):
                    run()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                result = run()
        finally:
            torch.set_autocast_cache_enabled(is_caching)
        return graph.replay, result
