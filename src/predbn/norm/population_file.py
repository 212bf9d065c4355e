"""What is known of the statistics of a data set while they are being measured, and a file to go on from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from torch import nn

from predbn.common import AdaptationError, read_tensors, write_tensors

from .layers import fingerprint
from .statistics import Statistics

Calls: TypeAlias = tuple[tuple[str, int], ...]
"""Which layers a batch called, in the order of the first calls, and how often."""


@dataclass
class PopulationProgress:
    """Which layers the batches call, how many batches there are, and the statistics of the layers that are done."""

    calls: list[Calls]
    batches: int
    layers: dict[str, Statistics]


class PopulationFile:
    """The layers that are done, in a file; a call that was killed goes on from there.

    Of several processes one reads and writes it: the one for which `is_ours` is set.

    It belongs to a model with certain weights, and to a selection of its layers. Whether the data is the same cannot be
    known; that it has as many batches is checked.
    """

    def __init__(self, path: str | Path, model: nn.Module, layers: Iterable[str], *, is_ours: bool = True) -> None:
        self.path = Path(path)
        self._model = fingerprint(model, layers)
        self._is_ours = is_ours

    def read(self) -> PopulationProgress | None:
        """What the file has; None if there is no file, or if it is the business of another process."""
        if not self._is_ours or not self.path.exists():
            return None
        remedy = "delete it to begin anew"
        content = read_tensors(self.path, kind="unfinished statistics", error=AdaptationError, remedy=remedy)
        if content.get("model") != self._model:
            raise AdaptationError(f"{self.path} belongs to a model with other weights or to other layers: {remedy}.")
        return PopulationProgress(
            [tuple((layer, count) for layer, count in calls) for calls in content["calls"]],
            content["batches"],
            {layer: Statistics(**statistics) for layer, statistics in content["layers"].items()},
        )

    def write(self, progress: PopulationProgress) -> None:
        if self._is_ours:
            layers = {layer: statistics._asdict() for layer, statistics in progress.layers.items()}
            content = {"model": self._model, "calls": progress.calls, "batches": progress.batches, "layers": layers}
            write_tensors(self.path, content)

    def remove(self) -> None:
        """When all is done."""
        if self._is_ours:
            self.path.unlink(missing_ok=True)
