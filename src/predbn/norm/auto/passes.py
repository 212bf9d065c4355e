"""What one of several passes over a batch is told, and what it finds out.

`AutoPredictor` (`predictor.py`) calls its model several times with the same batch. What a pass is told reaches the
layers, and what they find gets back, through an object of the thread: the model between them knows nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..segments import Segments
from .composition import Composition

if TYPE_CHECKING:
    from ..adaptation import Adaptation


@dataclass
class BatchPass:
    """One of the passes over a batch.

    adaptation   of the layers that are told about classes
    composition  which classes the batch holds; None for those of the source
    is_last      whether this is the pass that counts: the others change no state
    difference   d of the last layer: how far the batch was from clean data of these classes; None if it compared none
    segments     how the layers have divided the examples
    """

    adaptation: Adaptation
    composition: Composition | None
    is_last: bool
    difference: Tensor | float | None = None
    segments: Segments | None = None


class _Running:
    def __init__(self) -> None:
        self.current: BatchPass | None = None


class _RunningInThread(threading.local, _Running):
    pass


_traced, _eager = _Running(), _RunningInThread()


def running_batch_pass() -> BatchPass | None:
    """torch.compile cannot follow what changes in a `threading.local`, but reads what eager code has set there."""
    return (torch.compiler.is_dynamo_compiling() and _traced.current) or _eager.current


@contextmanager
def running(batch_pass: BatchPass) -> Iterator[BatchPass]:
    """Whatever is predicted in the block belongs to this pass. A pass in a pass that does not count does not either."""
    place: Any = _traced if torch.compiler.is_dynamo_compiling() else _eager
    before, place.current = place.current, batch_pass
    batch_pass.is_last = batch_pass.is_last and (before is None or before.is_last)
    try:
        yield batch_pass
    finally:
        place.current = before
