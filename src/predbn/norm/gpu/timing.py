"""How long a call takes on a GPU, for choices between several ways to compute the same."""

from __future__ import annotations

from collections.abc import Callable

import torch

_REPEATS, _RUNS = 8, 6
"""How often a call is timed (other programs may use the GPU now and then), and how often it runs each time."""
_HEAD_START, _LONGEST_HEAD_START = 1_000_000, 256_000_000
"""For how many cycles the GPU waits before, so that it is never the host that is timed: half a millisecond at first,
and longer for calls that take the host longer."""


def microseconds(call: Callable[[], object]) -> float:
    """The least of a few measurements. The call must have run before, so that everything is built."""
    times: list[float] = []
    head_start = _HEAD_START
    while len(times) < _REPEATS:
        time, is_of_gpu = _once(call, head_start)
        if is_of_gpu or head_start >= _LONGEST_HEAD_START:
            times.append(time)
        else:
            head_start *= 2
    return min(times)


def _once(call: Callable[[], object], head_start: int) -> tuple[float, bool]:
    """The time, and whether the GPU has waited until the host had launched everything."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(head_start)
    begin.record()
    for _ in range(_RUNS):
        call()
    end.record()
    has_waited = not begin.query()
    end.synchronize()
    return float(begin.elapsed_time(end)) / _RUNS * 1e3, has_waited
