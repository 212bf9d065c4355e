"""What one of several passes over a batch is told, and what it finds out.

`AutoPredictor` (`predictor.py`) calls its model several times with the same batch. What a pass is told reaches the
layers, and what they find gets back, through an object of the thread: the model between them knows nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..segments import Segments
from ..statistics import Statistics
from .calibration import Calibration
from .composition import Composition
from .explained import Sampling, without_classes

if TYPE_CHECKING:
    from ..adaptation import Adaptation
    from ..observation import Observation


class _Seen(NamedTuple):
    """What a layer saw in a pass."""

    clean: Calibration
    batch: Statistics
    size: Tensor | float
    eps: float


@dataclass
class BatchPass:
    """One of the passes over a batch.

    adaptation   of the layers that are told about classes
    composition  which classes the batch holds; None for those of the source
    is_plain     whether the layers use the stored statistics and only look at the batch. It is the first pass
    counts       whether states may change: in the first pass, unless it is in a pass that does not count
    segments     how the layers have divided the examples
    """

    adaptation: Adaptation
    composition: Composition | None = None
    is_plain: bool = False
    counts: bool = False
    segments: Segments | None = None
    _seen: list[_Seen] = field(default_factory=list)

    def look(self, observation: Observation) -> None:
        """Keep what a layer sees."""
        self.segments = observation.segments
        if observation.source is not None and observation.calibration is not None:
            batch = observation.moments(allow_single_value=True)
            clean = observation.calibration.to(batch.mean)
            self._seen.append(_Seen(clean, batch.statistics, batch.n, observation.eps))

    def unexplained(self, classes: Composition | None) -> Tensor:
        """How many times the difference from clean data is what chance explains, in each layer, if the batch holds
        these classes: [layers, 1] or [layers, S, 1]. None are the classes of the source.

        There are no layers if the batch is empty.
        """
        if not self._seen:
            return torch.empty(0, 1)
        device, ratios = self._seen[0].batch.mean.device, []
        for clean, batch, size, eps in self._seen:
            expected = Sampling(1.0, 1 / clean.size)
            if classes is not None and clean.class_sizes is not None:
                batch, expected = without_classes(batch, clean, classes, eps)
            _, z2, r = clean.compare(batch, eps)
            ratio = clean.difference(z2, r) / expected.of(size)
            ratios.append((batch.mean.new_ones(*batch.mean.shape[:-1], 1) * ratio).to(device))
        return torch.stack(ratios)


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
    batch_pass.counts = batch_pass.is_plain and (before is None or before.counts)
    try:
        yield batch_pass
    finally:
        place.current = before
