"""CUDA streams and graphs on a machine without a GPU, for tests.

Work is done at once, so that results do not depend on the order that streams allow. That order is checked instead:
every stream knows which work it is sure to come after, its own and that of the streams it has waited for.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Stream:
    def __init__(self, device=None):
        self.device, self.done = device, set()

    def wait_stream(self, other):
        self.done |= other.done


class Graph(TorchDispatchMode):
    """Records operators, and repeats them on the same memory."""

    def __init__(self, cuda):
        super().__init__()
        self._cuda, self._operators = cuda, []
        self.pool, self.recorded_on = None, None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        self._operators.append((function, args, kwargs or {}, results))
        return results

    def replay(self):
        for function, args, kwargs, results in self._operators:
            for old, new in zip(_tensors(results), _tensors(function(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)
        self._cuda.replays.append((self, self._cuda.current, set(self._cuda.current.done)))
        self._cuda.work(len(self._cuda.replays))


def _tensors(results):
    return [each for each in (results if isinstance(results, tuple | list) else [results]) if torch.is_tensor(each)]


class Cuda:
    """What takes the place of functions of `torch.cuda`. `replays` are (graph, stream, what the stream had done)."""

    def __init__(self, monkeypatch, records=True):
        self.main = self.current = Stream()
        self.replays, self.used_on, self._records = [], [], records
        pools = count()
        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "stream", self._stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.current)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(self))
        monkeypatch.setattr(torch.cuda, "graph", self._graph)
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: self.used_on.append(stream))

    def work(self, name):
        """Something is done on the current stream."""
        self.current.done.add(name)

    @contextmanager
    def _stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def _graph(self, graph, pool, stream, capture_error_mode):
        if not self._records:
            raise RuntimeError("operation not permitted when stream is capturing")
        graph.pool, graph.recorded_on = pool, stream
        with graph:
            yield
