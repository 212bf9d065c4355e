"""What streams remember, in memory that a recorded pass changes.

The rows of the streams are copied from the table (`stream_table.py`) into this memory before a replay, and back after
it. So a table may be moved when it grows, and a graph is for any streams of its stage.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import AdaptationError

from .mixed_pass import MixedPass, PassPart
from .stream_table import GatheredStates, StageColumns, StreamTable, finite_streams


class StaticStates:
    """The states of so many streams of one stage of a table."""

    def __init__(self, table: StreamTable, stage: StageColumns, count: int) -> None:
        self.table, self.stage, self.count = table, stage, count
        with torch.inference_mode(False):
            self._values = {key: matrix.new_zeros(count, matrix.shape[1]) for key, matrix in self._matrices().items()}

    def _matrices(self) -> dict[tuple[torch.device, torch.dtype], Tensor]:
        return self.table.matrices(self.stage)

    @torch.no_grad()
    def load(self, places: Tensor) -> None:
        """Copy the streams in these rows of the table."""
        for key, matrix in self._matrices().items():
            own = self._values[key]
            torch.index_select(matrix.narrow(1, 0, own.shape[1]), 0, places, out=own)

    @torch.no_grad()
    def store(self, places: Tensor) -> None:
        """Copy the first streams back into these rows."""
        with self.table.lock:
            for key, matrix in self._matrices().items():
                own = self._values[key]
                matrix.narrow(1, 0, own.shape[1]).index_copy_(0, places, own.narrow(0, 0, len(places)))

    def gathered(self) -> GatheredStates:
        """A copy for a pass, which may change it in place."""
        return GatheredStates(self.stage, {key: own.clone() for key, own in self._values.items()}, self.count)

    @torch.no_grad()
    def replace(self, states: GatheredStates) -> None:
        """The states after a pass. A stream whose new state is not finite keeps the old one."""
        stage, new = self.table.joined(states, self.count)
        if stage is not self.stage:
            raise AdaptationError("a pass that changes what streams remember in kind cannot be recorded")
        is_finite = finite_streams(new)
        for key, values in new.items():
            own = self._values[key].narrow(1, 0, values.shape[1])
            own.copy_(values if is_finite is None else torch.where(is_finite[:, None], values, own))


class StaticPass(MixedPass):
    """A pass over these streams. Nobody else has them, so that there is nothing to lock."""

    def __init__(self, states: StaticStates) -> None:
        super().__init__((), states.table)
        self._states = states

    def parts(self) -> list[PassPart]:
        if not self._parts:
            self._parts = [PassPart(list(range(self._states.count)), self._states.gathered())]
        return self._parts

    def end(self, *, keep: bool) -> None:
        parts, self._parts = self._parts, []
        if keep and not self.is_rejected:
            for part in parts:
                self._states.replace(part.states)
