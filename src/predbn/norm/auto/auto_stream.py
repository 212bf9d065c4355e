"""`auto_stream`: `auto` for a stream, whose past tells more than its newest batch.

A layer remembers the statistics of the stream and how many examples are behind them.

1. The batch is corrected for the classes that the stream is expected to hold next, in the shares π̂
   (`Calibration.with_source_classes`). They are wrong by e² (`stream_classes.py`), and the share b of the chance lies
   between classes, so that the batch tells as much as n_b examples of the source, where

       1/n_b = (1 − b)/n + b·max(e², 1/n).

2. It is combined with the past, which counts the less the more the batch contradicts it (`stream_past.py`).
3. Steps 1 to 4 of `auto` use the combined statistics, and n of them, in place of those of the batch. Predictions that
   are wrong are wrong in the same way again and again, so that a long past does not make the doubt u about its classes
   smaller: chance explains 1/n + 1/M + 2·b·u.
4. When the pass has ended, the model has predicted the classes of the batch, in the shares π_c, which are wrong by c².
   What the stream remembers is the batch corrected for π_c, with

       1/n_b = (1 − b)/n + b·c²,

   combined with the past as in 2. So it remembers the shift, and not the classes that were seen with it. This is done
   when the next batch has come, since only then is it needed.

Where classes are not known (a calibration without moments of classes, a model whose output is not scores of these
classes, `calibrated=False`, a layer without a model), b = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from ..observation import Observation
from ..robust import WIDE
from ..segments import Segments
from ..statistics import Statistics
from ..strategies.base import check_momentum, load_tensor, save_statistics
from ..streams.state import LayerState, States
from ..tracing import is_readable
from .auto import AutoRule
from .calibration import Calibration
from .stream_classes import StreamClasses, gives_classes
from .stream_past import Estimate, combine

if TYPE_CHECKING:
    from ..adaptation import Adaptation

_CLASSES = ("shares", "expected", "class_errors", "class_sums")
"""The keys of `StreamClasses` in the state of a layer. All layers of a model share these tensors."""


@dataclass(frozen=True)
class AutoStream(AutoRule):
    """`auto` with the statistics of the stream so far in place of those of the newest batch.

    A single image is too small to tell a shift from sampling noise; its stream is not. When the stream changes, the
    past is forgotten as far as the newest batch contradicts it; and what the classes of a batch explain is not taken
    for a shift, so that a stream may be sorted by class. `predbn.reset` clears the memory, `predbn.stream` gives every
    source its own, `predbn.fold` fixes the current statistics.

    momentum             how likely a batch is the first one after a change, before it was seen; also the share of the
                         past that is forgotten with a batch that does not contradict it. In a stream that does not
                         change, n grows to (2 − momentum)/momentum = 19 batches. With 1 every batch stands alone, with
                         0 nothing is forgotten
    calibrated           as for `auto`
    """

    name: ClassVar[str] = "auto_stream"
    keeps_state: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    bounds: ClassVar[float] = WIDE
    momentum: float = 0.1

    def __post_init__(self) -> None:
        check_momentum(self.name, self.momentum, "how likely a batch is the first one after a change")

    def statistics(self, observation: Observation) -> Statistics:
        source, eps = observation.source, observation.eps
        moments = observation.moments(allow_single_value=source is not None)
        state = observation.state
        batch, n = moments.statistics, moments.n
        past = _load_past(state, batch.mean)
        if source is None:
            combined = combine(past, Estimate(batch, n, n), None, eps, self.momentum)
            _save_past(state, combined)
            return save_statistics(state, combined.statistics)
        clean_data = self.clean_data(observation, source)
        clean = clean_data[0]
        if clean.class_sizes is None:
            combined = combine(past, Estimate(batch, n, n), clean, eps, self.momentum)
            _save_past(state, combined)
        else:
            if "new_size" in state:
                past = combine(past, _last_batch(state, clean, eps), clean, eps, self.momentum)
                _save_past(state, past)
            new = _as_expected(state, batch, n, clean, eps)
            combined = combine(past, new, clean, eps, self.momentum)
            state["new_mean"], state["new_var"] = batch.mean.detach(), batch.var.detach()
            state["new_size"] = _as_tensor(n, batch.mean).reshape(*batch.mean.shape[:-1], 1)
        doubt = _read(load_tensor(state, "class_errors"))[2] if "class_errors" in state else 0.0
        mixed = self.mixed_statistics(observation, source, clean_data, combined.statistics, combined.size, doubt)
        return save_statistics(state, mixed)

    def after_pass(self, states: States, output: Any, shared: Adaptation, segments: Segments | None) -> None:
        """Step 4: the classes that the model has predicted, for all layers."""
        if shared.classes is None:
            return
        sizes, groups = shared.classes.class_sizes, shared.classes.class_groups
        assert sizes is not None
        if not gives_classes(output, len(sizes if groups is None else groups)):
            return
        following = [state for state in states.values() if "new_size" in state]
        if not following:
            return
        first = following[0]
        is_known = "expected" in first
        classes = StreamClasses(*(load_tensor(first, key) for key in _CLASSES)) if is_known else StreamClasses.of(sizes)
        sync = shared.sync and dist.is_available() and dist.is_initialized()
        classes = classes.after(output, sizes, groups, self.momentum, sync, shared.process_group, segments)
        for state in following:
            state.update({**dict(zip(_CLASSES, classes, strict=True)), "new_shares": classes.shares})


def _as_expected(state: LayerState, batch: Statistics, n: Tensor | float, clean: Calibration, eps: float) -> Estimate:
    """Step 1: a batch corrected for the classes that are expected. The first one may hold any."""
    if "expected" not in state:
        return _corrected(batch, n, clean, eps, None, 1 / n if "new_size" in state else 1.0)
    error = _larger(_read(load_tensor(state, "class_errors"))[1], 1 / n)
    return _corrected(batch, n, clean, eps, load_tensor(state, "expected"), error)


def _last_batch(state: LayerState, clean: Calibration, eps: float) -> Estimate:
    """Step 4: the batch before, corrected for the classes that were predicted, or expected if there was no end of a
    pass since, because a pass calls the layer several times."""
    batch = Statistics(*(load_tensor(state, key).to(clean.mean) for key in ("new_mean", "new_var")))
    (n,) = _read(load_tensor(state, "new_size"))
    if "new_shares" not in state:
        return _as_expected(state, batch, n, clean, eps)
    shares = load_tensor(state, "new_shares")
    del state["new_shares"]
    return _corrected(batch, n, clean, eps, shares, _read(load_tensor(state, "class_errors"))[0])


def _corrected(
    batch: Statistics, n: Tensor | float, clean: Calibration, eps: float, shares: Tensor | None, error: Tensor | float
) -> Estimate:
    """The batch with the classes of the source, and n_b. The error of the shares is e² or c²."""
    size = 1 / ((1 - clean.between) / n + clean.between * error)
    if shares is not None:
        batch = clean.with_source_classes(batch, shares.to(batch.mean), eps)
    return Estimate(batch, size, size)


def _load_past(state: LayerState, like: Tensor) -> Estimate | None:
    if "counts" not in state:
        return None
    mean, var, counts = (load_tensor(state, key).to(like) for key in ("seen_mean", "seen_var", "counts"))
    return Estimate(Statistics(mean, var), *_read(counts))


def _save_past(state: LayerState, past: Estimate) -> None:
    mean, var = past.statistics
    state["seen_mean"], state["seen_var"] = mean.detach(), var.detach()
    counts = (_as_tensor(count, mean).detach() for count in (past.total, past.squares))
    state["counts"] = torch.cat([count.expand(*mean.shape[:-1], 1) for count in counts], -1)


def _as_tensor(value: Tensor | float, like: Tensor) -> Tensor:
    """On a device a number is written by a kernel: copying it there from the host would wait."""
    return value.to(like) if isinstance(value, Tensor) else like.new_full((), value)


def _read(values: Tensor) -> Sequence[Tensor | float]:
    """The values as numbers if they can be read without waiting; those of several streams as [S, 1] each."""
    if values.dim() > 1:
        return list(values.split(1, -1))
    return values.tolist() if is_readable(values) else values.unbind()


def _larger(a: Tensor | float, b: Tensor | float) -> Tensor | float:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.maximum(*torch.broadcast_tensors(torch.as_tensor(a), torch.as_tensor(b)))
    return max(a, b)
