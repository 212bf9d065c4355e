"""How long a call takes on a GPU, for choices between several ways to compute the same."""

from __future__ import annotations

from collections.abc import Callable

import torch

_REPEATS, _RUNS, _HEAD_START = 8, 6, 1_000_000
"""How often a call is timed (other programs may use the GPU now and then), how often it runs each time, and for how
many cycles the GPU waits before, so that it is never the host that is timed."""


def microseconds(call: Callable[[], object]) -> float:
    """The least of a few measurements. The call must have run before, so that everything is built."""
    return min(_once(call) for _ in range(_REPEATS))


def _once(call: Callable[[], object]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_HEAD_START)
    begin.record()
    for _ in range(_RUNS):
        call()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / _RUNS * 1e3
