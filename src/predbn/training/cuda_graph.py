"""A training step as a CUDA graph.

A graph reads and writes fixed memory, so that everything that changes from step to step (the batch, a cursor, the
learning rate) has to be in tensors that are overwritten in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from predbn.gpu import CudaGraphRecorder


def on_stream(stream: torch.cuda.Stream | None) -> AbstractContextManager[Any]:
    """Queue work on a stream; on the current one, or on the CPU, if it is None."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


class StepGraph:
    """Runs the training step of a network; on a GPU, as a graph that is captured at the first step.

    `counters` are the tensors besides weights and optimiser state that the step changes. Replays run on `stream`, or
    on the current stream if it is None.
    """

    def __init__(
        self,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        counters: Sequence[Tensor],
        device: torch.device,
        *,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self._network, self._optimiser, self._counters = network, optimiser, counters
        self._device, self._stream = device, stream
        self._replay: Callable[[], None] | None = None

    def run(self, step: Callable[[], None]) -> None:
        """Run the step, which has to be the same at every call."""
        if self._device.type != "cuda":
            step()
            return
        with on_stream(self._stream):
            if self._replay is None:
                self._replay = self._capture(step)
            self._replay()

    def _capture(self, step: Callable[[], None]) -> Callable[[], None]:
        """Capture the step. The steps that warm up for it are undone, so that only replays train."""
        weights = {name: tensor.clone() for name, tensor in self._network.state_dict().items()}
        moments = {p: {k: v.clone() for k, v in state.items()} for p, state in self._optimiser.state.items()}
        counters = [counter.clone() for counter in self._counters]

        def warm_up() -> None:
            self._restore_counters(counters)
            step()

        recorder = CudaGraphRecorder(self._stream or torch.cuda.Stream(self._device))
        replay, _ = recorder.record(step, warm_up)
        self._network.load_state_dict(weights)
        for parameter, state in self._optimiser.state.items():
            for name, tensor in state.items():
                before = moments.get(parameter, {}).get(name)
                tensor.zero_() if before is None else tensor.copy_(before)
        self._restore_counters(counters)
        return replay

    def _restore_counters(self, values: Sequence[Tensor]) -> None:
        for counter, value in zip(self._counters, values, strict=True):
            counter.copy_(value)
