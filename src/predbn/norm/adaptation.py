"""What `adapt` attaches to a model: what all adapted layers share, and what belongs to one of them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from predbn.common import AdaptationError

from .auto.calibration import Calibration
from .observation import Observation
from .statistics import Statistics
from .strategies.base import Strategy
from .streams.registry import StreamRegistry
from .streams.store import StreamStore
from .streams.stream import Stream

Observer: TypeAlias = Callable[[Observation, Statistics], None]
"""Called with what a strategy saw of a layer's call and the statistics it chose."""


class _Version:
    """How often layers of any model were adapted, restored or given a calibration.

    Whoever keeps something that depends on it looks again when the count has changed.
    """

    count = 0


VERSION = _Version()


class Adaptation:
    """What all layers share that were adapted by one call of `adapt`.

    `limit` bounds the influence of examples (c of `robust.py`); None if it is not bounded. `classes` is the calibration
    of a layer that has classes; None if there is none.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        eps: float | None = None,
        sync: bool = False,
        process_group: Any = None,
        group: int | None = None,
        limit: float | None = None,
        consecutive_rows: bool = False,
        layer_count: int = 1,
        max_streams: int | None = None,
        store: StreamStore | None = None,
    ) -> None:
        self.strategy = strategy
        self.eps = eps
        self.sync = sync
        self.process_group = process_group
        self.group = group
        self.limit = limit
        self.consecutive_rows = consecutive_rows
        self.layer_count = layer_count
        self.streams = StreamRegistry(keeps_state=strategy.keeps_state, max_streams=max_streams, store=store)
        self.observer: Observer | None = None
        self.classes: Calibration | None = None
        self._has_warned = self._has_warned_of_training = False

    @property
    def default_stream(self) -> Stream:
        return self.streams.default

    @property
    def repeated_stream(self) -> Stream:
        """The stream of a pass that activation checkpointing runs again: the block it was made in may be closed, or is
        open in another thread."""
        passed = [stream for stream in self.streams.values() if stream.previous is not None]
        if len(passed) > 1:
            raise AdaptationError(
                "activation checkpointing runs a pass again, and several streams were predicted, so that it is unknown "
                "which one that was; call backward in the block of its stream, with predbn.stream(model, …)"
            )
        return passed[0] if passed else self.default_stream

    def warn_of_bad_rows(self, layer: str, count: int) -> None:
        """Warn once about examples that are not finite."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"layer '{layer}' got {count} examples that are not finite (NaN or infinite). They are not used for "
                "statistics; predbn.describe(model) counts them",
                UserWarning,
                stacklevel=4,
            )

    def warn_of_training(self) -> None:
        """Warn once that a call changes running statistics. Python shows the same warning once in a program, so that
        whoever adapts while training sees it no second time."""
        if not self._has_warned_of_training:
            self._has_warned_of_training = True
            warnings.warn(
                "an adapted model was called in training mode, in which its layers update their running statistics "
                "and are not adapted; predbn.restore does not undo the update. Call model.eval() before predicting",
                UserWarning,
                stacklevel=5,
            )

    def __getstate__(self) -> dict[str, Any]:
        """Process groups belong to this process and cannot be saved."""
        if self.process_group is not None:
            raise AdaptationError(
                "a model that is synchronised over a process group cannot be pickled, because the group belongs to "
                "this process; restore the model first, and adapt it again after loading"
            )
        return self.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> Adaptation:
        """A copy is synchronised over the same processes."""
        new = memo[id(self)] = object.__new__(type(self))
        memo[id(self.process_group)] = self.process_group
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new


class LayerAdaptation:
    """What `adapt` attaches to one layer: its own data, and in `shared` what it shares with the other layers.

    `seen` and `used` are the statistics of the last batch and those that it was normalised with, [C], or [S, C] of its
    segments. None if they are not known: after a pass that the strategy needed no moments for, or in a graph.
    """

    def __init__(self, name: str, shared: Adaptation, calibration: Calibration | None = None) -> None:
        self.name = name
        self.shared = shared
        self.seen: Statistics | None = None
        self.used: Statistics | None = None
        self.bad_rows = 0
        self._calibration: Calibration | None = None
        self.calibration = calibration

    @property
    def calibration(self) -> Calibration | None:
        """What `calibrate` measured for the layer."""
        return self._calibration

    @calibration.setter
    def calibration(self, calibration: Calibration | None) -> None:
        VERSION.count += 1
        self._calibration = calibration
        if calibration is not None and calibration.class_sizes is not None:
            self.shared.classes = calibration

    def eps(self, layer: Any) -> float:
        return float(layer.eps) if self.shared.eps is None else self.shared.eps

    def moved(self, device: torch.device) -> None:
        """Move the calibration, and what streams remember of the layer, to a device."""
        for stream in self.shared.streams.values():
            state = stream.states.get(self.name)
            if state is not None:
                moved = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in state.items()}
                stream.set_state(self.name, moved)
        if self.calibration is not None:
            self.calibration = self.calibration.to(device)
