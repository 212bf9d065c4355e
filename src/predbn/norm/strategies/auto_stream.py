"""`auto_stream`: `auto` for a stream, whose past tells more than its newest batch.

A layer remembers the statistics of the stream and how many examples are behind them.

1. The batch is corrected for the classes that the stream is expected to hold next, in the shares π̂
   (`Calibration.with_source_classes`). They are wrong by e² (`stream_classes.py`), and the share b of the chance lies
   between classes, so that the batch tells as much as n_b examples of the source, where

       1/n_b = (1 − b)/n + b·max(e², 1/n).

2. It is combined with the past, which counts the less the more the batch contradicts it (`stream_past.py`).
3. Steps 1 to 5 of `auto` use the combined statistics, and n of them, in place of those of the batch. Predictions that
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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from predbn.common import AdaptationError

from ..calibration import Calibration
from ..gpu.rules import MOST_CHANNELS, PAST_KEYS, Past, Rule, StateColumns
from ..kernels import readable_without_sync
from ..observation import Observation
from ..passes import ChangedStates
from ..statistics import Statistics
from ..stream_classes import StreamClasses, gives_classes
from ..stream_rows import StreamRows
from ..stream_table import GatheredStates, LayerState, joined_offsets
from .auto import CLASS_FACTOR, NETWORK_FACTOR, Auto
from .base import check_momentum, load_tensor, save_statistics
from .stream_past import Estimate, combine

if TYPE_CHECKING:
    from ..adapted_layer import Adaptation

_CLASSES = ("shares", "expected", "class_errors", "class_sums")
"""The keys of `StreamClasses` in the state of a layer. All layers of a model have the same."""
_PAST = ("seen_mean", "seen_var", "counts")
"""The keys of the past."""
_NEW = ("new_mean", "new_var", "new_size")
"""The keys of the batch that is not yet part of it."""


@dataclass(frozen=True)
class AutoStream(Auto):
    """`auto` with the statistics of the stream so far in place of those of the newest batch.

    By itself, a single image hardly allows to tell a shift from chance; its stream does. When the stream changes, the
    past is forgotten as far as the newest batch contradicts it; and what the classes of a batch explain is not taken
    for a shift, so that a stream may be sorted by class. `predbn.reset` clears the memory, `predbn.stream` gives every
    source its own, `predbn.fold` fixes the current statistics.

    momentum             how likely a batch is the first one after a change, before it was seen; also the share of the
                         past that is forgotten with a batch that does not contradict it. In a stream that does not
                         change, n grows to (2 − momentum)/momentum = 19 batches. With 1 every batch stands alone, with
                         0 nothing is forgotten
    skewed, calibrated   as for `auto`; `skewed=True` is not needed where classes are known, and disables them
    """

    name: ClassVar[str] = "auto_stream"
    keeps_state: ClassVar[bool] = True
    can_be_folded: ClassVar[bool] = True
    works_in_groups: ClassVar[bool] = False
    default_passes: ClassVar[int] = 1
    has_fixed_rule: ClassVar[bool] = True
    momentum: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pass_count > 1:
            raise AdaptationError("strategy 'auto_stream' predicts a batch once; only 'auto' takes passes")
        check_momentum(self.name, self.momentum, "how likely a batch is the first one after a change")

    @property
    def follows_classes(self) -> bool:
        return self.skewed is None

    def statistics(self, observation: Observation) -> Statistics:
        source, eps = observation.source, observation.eps
        moments = observation.moments(allow_single_value=source is not None)
        if source is not None and observation.has_streams and _can_use_numpy(moments.mean, source.mean):
            rule = self.rule(observation)
            if isinstance(rule, Past):
                from ..cpu_past import follow  # it needs the equations of this folder

                used = follow(rule, moments.statistics, torch.as_tensor(moments.size), eps)
                self.save(observation, rule, used)
                return used
        state = observation.state
        batch, n = moments.statistics, moments.n
        past = _load_past(state, batch.mean)
        if source is None:
            combined = combine(past, Estimate(batch, n, n), None, eps, self.momentum)
            _save_past(state, combined)
            return save_statistics(state, combined.statistics)
        clean_data = self.clean_data(observation, source)
        clean = clean_data[0]
        if clean.class_sizes is None or self.skewed:
            combined = combine(past, Estimate(batch, n, n), clean, eps, self.momentum)
            _save_past(state, combined)
        else:
            if "new_size" in state:
                past = combine(past, _last_batch(state, clean, eps), clean, eps, self.momentum)
                _save_past(state, past)
            new = _as_expected(state, batch, n, clean, eps)
            combined = combine(past, new, clean, eps, self.momentum)
            state["new_mean"], state["new_var"] = batch.mean.detach(), batch.var.detach()
            state["new_size"] = _as_tensor(n, batch.mean).reshape(batch.mean.shape[:-1])
        doubt = _read(load_tensor(state, "class_errors"))[2] if "class_errors" in state else 0.0
        mixed = self.mixed_statistics(observation, source, clean_data, combined.statistics, combined.size, doubt)
        return save_statistics(state, mixed)

    def rule(self, observation: Observation) -> Rule | None:
        clean, source, columns = observation.calibration, observation.source, observation.state_columns(PAST_KEYS)
        if clean is None or source is None or columns is None:
            return None
        keys, device, channels = columns.keys, source.mean.device, source.mean.shape[0]
        has_classes = clean.class_sizes is not None and not self.skewed
        has_last = has_classes and "new_size" in keys
        if channels > MOST_CHANNELS or ("class_errors" in keys and not has_classes):
            return None
        new_keys = {"mean", "var", *(_PAST if has_last or not has_classes else ()), *(_NEW if has_classes else ())}
        states, in_place = None, False
        if columns.matrix is not None and columns.offsets is not None:
            states, in_place = (
                StateColumns(columns.matrix, columns.offsets),
                not columns.is_copy and new_keys <= columns.keys,
            )
        results = states if states is not None and in_place else _new_columns(channels, observation.size, device)
        return Past(
            clean if clean.mean.device == device else clean.to(device),
            source,
            self.momentum,
            states or results,
            results,
            in_place,
            has_past="counts" in keys,
            has_last=has_last,
            has_shares=has_last and "new_shares" in keys,
            is_expected=has_classes and "expected" in keys,
            has_classes=has_classes,
            network=NETWORK_FACTOR * clean.network**2,
            skew=CLASS_FACTOR * clean.between if self.skewed else 0.0,
            doubt=CLASS_FACTOR * clean.between,
        )

    def save(self, observation: Observation, rule: Rule, statistics: Statistics) -> None:
        assert isinstance(rule, Past)
        if rule.in_place:
            if rule.has_shares:
                observation.take_state("new_shares")
            return
        state, channels = observation.state, statistics.mean.shape[-1]
        state.pop("new_shares", None)
        saved = {"mean", "var", *(_PAST if rule.has_last or not rule.has_classes else ())}
        for key, start, width in _new_layout(channels):
            if key in saved or (rule.has_classes and key in _NEW):
                value = rule.results.matrix.narrow(1, start, width)
                value = value[:, 0] if key == "new_size" else value
                state[key] = value if observation.has_streams else value[0]

    def after_pass(
        self, states: Mapping[str, LayerState], output: Any, shared: Adaptation, rows: StreamRows | None = None
    ) -> None:
        """Step 4: the classes that the model has predicted, for all layers."""
        if shared.classes is None:
            return
        sizes, groups = shared.classes.class_sizes, shared.classes.class_groups
        assert sizes is not None
        if not gives_classes(output, len(sizes if groups is None else groups)):
            return
        first = next((layer for layer in states if _value(states, layer, "new_size") is not None), None)
        if first is None:
            return
        known = _value(states, first, "expected") is not None
        classes = (
            StreamClasses(*(_tensor(states, first, key) for key in _CLASSES)) if known else StreamClasses.of(sizes)
        )
        sync = shared.sync and dist.is_available() and dist.is_initialized()
        classes = classes.after(output, sizes, groups, self.momentum, sync, shared.process_group, rows)
        new = {**dict(zip(_CLASSES, classes, strict=True)), "new_shares": classes.shares}
        if isinstance(states, (GatheredStates, ChangedStates)) and states.fill("new_size", new):
            return
        for state in states.values():
            if "new_size" in state:
                state.update(new)


def _can_use_numpy(*tensors: Tensor) -> bool:
    """Whether these are numbers of single precision on a CPU, without gradients."""
    return all(readable_without_sync(t) and t.dtype == torch.float32 for t in tensors)


def _value(states: Mapping[str, LayerState], layer: str, key: str) -> Tensor | int | None:
    if isinstance(states, (GatheredStates, ChangedStates)):
        return states.value(layer, key)
    return states[layer].get(key)


def _tensor(states: Mapping[str, LayerState], layer: str, key: str) -> Tensor:
    if not isinstance(states, (GatheredStates, ChangedStates)):
        return load_tensor(states[layer], key)
    value = states.value(layer, key)
    assert isinstance(value, Tensor)
    return value


def _new_layout(channels: int) -> list[tuple[str, int, int]]:
    """Key, first column and width of what a stream remembers of a layer, in a matrix of the layer's own."""
    layout, start = [], 0
    for key in (*_PAST, *_NEW, "mean", "var"):
        width = {"counts": 2, "new_size": 1}.get(key, channels)
        layout.append((key, start, width))
        start += width
    return layout


def _new_columns(channels: int, size: Tensor | int, device: torch.device) -> StateColumns:
    """Memory for the states of streams that the table has no columns for yet."""
    streams = size.shape[0] if isinstance(size, Tensor) else 1
    widths = tuple((key, width) for key, _, width in _new_layout(channels))
    matrix = torch.empty(streams, sum(width for _, width in widths), device=device)
    return StateColumns(matrix, joined_offsets(widths, device, PAST_KEYS))


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
    (n,) = _read(load_tensor(state, "new_size")[..., None])
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
    return values.tolist() if readable_without_sync(values) else values.unbind()


def _larger(a: Tensor | float, b: Tensor | float) -> Tensor | float:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.maximum(*torch.broadcast_tensors(torch.as_tensor(a), torch.as_tensor(b)))
    return max(a, b)
