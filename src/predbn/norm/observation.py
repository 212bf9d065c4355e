"""What a strategy can look at when it chooses a layer's statistics: observe, the first step of an adapted layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from predbn.common import AdaptationError

from . import moments
from .auto.calibration import Calibration
from .auto.composition import Composition
from .auto.passes import running_batch_pass
from .backend import Bounds, backend_of
from .robust import WIDE, bounded_moments, is_finite_example
from .statistics import Moments, Statistics, gather_examples, pool_over_processes
from .streams.state import LayerState
from .streams.stream import PassPart
from .tracing import is_exporting, is_readable, is_tracing, is_transformed

if TYPE_CHECKING:
    from .adaptation import LayerAdaptation
    from .call import Call


class Observation:
    """One call of one layer, as a strategy sees it. Everything is computed only when it is asked for.

    A batch has the moments [C]; with segments (groups of examples, or streams), each has its own, [S, C].

    Examples that are not finite are left out of the moments on a CPU, where a look at the moments tells that there are
    some, and of those of segments and with bounded influence everywhere. On a GPU looking would force a
    synchronisation in every layer: there they spoil the batch, but no state (`Pass.end`), no population statistics and
    no calibration.

    layer        the layer's name
    layer_count  how many layers are adapted together with this one, itself included
    eps          what is added to the variance
    size         how many examples the batch has, or [S, 1]; without those that are not finite once the moments are
                 known. An example may be several rows of the layer's input, such as tokens
    bad_rows     how many examples were left out because they are not finite
    composition  which classes the batch holds; None unless the strategy predicts a batch several times
    """

    def __init__(
        self,
        x: Tensor,
        adaptation: LayerAdaptation,
        call: Call,
        eps: float,
        source: tuple[Tensor | None, Tensor | None],
    ) -> None:
        shared, batch_pass = adaptation.shared, running_batch_pass()
        self.layer, self.layer_count, self.eps = adaptation.name, shared.layer_count, eps
        self._is_in_batch_pass = batch_pass is not None and batch_pass.adaptation is shared
        self.composition = batch_pass.composition if batch_pass is not None and self._is_in_batch_pass else None
        self.bad_rows = 0
        self.is_rejected = False
        """Whether this call must not change any state, because no example is finite."""
        self._x, self._adaptation, self._call = x, adaptation, call
        self.parts = call.parts()
        self._part = self.parts[0] if self.parts else None
        mean, var = source
        self._source = None if mean is None or var is None else Statistics(mean, var)
        self._sync = shared.sync and dist.is_available() and dist.is_initialized()
        if self._sync and (is_exporting() or torch.jit.is_tracing()):
            raise AdaptationError(
                "sync=True takes statistics over processes, which an exported graph cannot; export with sync=False"
            )
        rows = x.shape[0]
        self._examples = call.count_examples(adaptation.name, x)
        self._rows_per_example = 1 if rows == self._examples else rows // self._examples
        self.segments = call.segments_of(adaptation.name, self._examples, rows)
        self.size: int | Tensor = self._examples if self.segments is None else self.segments.size_tensor(x)
        self._moments: Moments | None = None

    @property
    def calibration(self) -> Calibration | None:
        """What `calibrate` measured for the layer; None without calibration."""
        return None if self._adaptation.shared.strategy.calibration == "ignored" else self._adaptation.calibration

    @property
    def source(self) -> Statistics | None:
        """The statistics stored in training, in the dtype of statistics; None for a layer that never tracked any."""
        if self._source is not None and self._source.mean.dtype != (dtype := moments.stats_dtype(self._x)):
            self._source = Statistics(*(t.to(dtype) for t in self._source))
        return self._source

    @property
    def state(self) -> LayerState:
        """A dictionary for the strategy's own use that lives as long as the stream."""
        if self._part is not None:
            return self._part.state(self.layer)
        return self._adaptation.shared.default_stream.states.get(self.layer, {})

    def count_pass(self) -> int:
        """How many passes of this stream have called the layer, including this one. Only with `keeps_state`."""
        assert self._part is not None
        return self._part.count(self.layer)

    def moments(self, *, allow_single_value: bool = False, may_wait: bool = False) -> Moments:
        """The batch's moments, over all processes if the adaptation is synchronised; [S, C] with segments.

        A single value per channel has no variance. That is an error, unless `allow_single_value` is set. With
        `may_wait`, examples that are not finite are left out on a GPU too.
        """
        if self._moments is None:
            self._moments = self._compute_moments(may_wait)
            self.size = self._moments.size
        if not allow_single_value:
            self._check_single_values()
        return self._moments

    @property
    def seen(self) -> Statistics | None:
        """The moments that the strategy has asked for; None if it has not."""
        return None if self._moments is None else self._moments.statistics

    def example_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and biased variance of each local example and channel, [N, C] each."""
        mean, var = moments.example_moments(self._x, self.eps)
        if self._rows_per_example > 1:
            means, mean_var = (t.unflatten(0, (-1, self._rows_per_example)) for t in (mean, var))
            mean = means.mean(1)
            var = mean_var.mean(1) + (means - mean[:, None]).square().mean(1)
        return mean, var

    def example_mean_variance(self) -> Tensor | None:
        """The unbiased variance of the examples' means, [C] or [S, C]; None for a single example, or 0 in a segment.

        It is taken over all processes if the adaptation is synchronised.
        """
        batch = self.moments(allow_single_value=True)
        between = self._between() if batch.between is None else batch.between
        size = batch.size
        if isinstance(size, Tensor):
            return between * (size / (size - 1).clamp(min=1)).to(between.dtype)
        return between * (size / (size - 1)) if size > 1 else None

    def of_part(self, part: PassPart) -> Observation:
        """What a strategy sees if it is asked about some of the streams only."""
        return _PartObservation(self, part)

    def _compute_moments(self, may_wait: bool) -> Moments:
        x = self._x
        bounds = self._bounds() if x.shape[0] or self._sync else None
        if not self._sync and self._rows_per_example == 1 and not may_wait:
            backend = backend_of(x.device.type)
            computed = None if backend is None else backend.moments(x, self.eps, self.segments, bounds)
            if computed is not None:
                return computed
        if bounds is not None:
            return self._bounded_moments(bounds)
        if self.segments is None and not self._is_masked:
            return self._batch_moments(may_wait)
        return self._pooled_moments()

    def _batch_moments(self, may_wait: bool) -> Moments:
        """Examples that are not finite are looked for only if the moments are not."""
        x, size = self._x, self._examples
        mean, var = moments.moments(x, self.eps)
        if (may_wait or is_readable(mean.detach())) and not _is_known_finite(mean, var):
            is_finite = x.detach().isfinite().flatten(1).all(1)
            if self._rows_per_example > 1:
                is_finite = is_finite.unflatten(0, (-1, self._rows_per_example)).all(1)
            if self._can_leave_out(is_finite) or (self._sync and self.bad_rows):
                size -= self.bad_rows  # if none is left here, other processes may have some
                x = x[is_finite.repeat_interleave(self._rows_per_example)]
                mean, var = moments.moments(x, self.eps)
            else:  # all examples are bad, or the variance is too large for its dtype
                self.is_rejected = True
        batch = Moments(mean, var, x.numel() // x.shape[1], size)
        return pool_over_processes(batch, self._adaptation.shared.process_group) if self._sync else batch

    def _pooled_moments(self) -> Moments:
        """Of each segment, or of the batch in a graph, without the examples that are not finite."""
        mean, var = self.example_moments()
        size, is_finite = self.size, None
        if self._is_masked or not is_transformed(mean):
            is_finite = is_finite_example(mean, var)
            size = self._count_finite(is_finite)
            if is_readable(is_finite) and not self.bad_rows:
                is_finite = None
        statistics = moments.pooled(mean, var, self.segments, size, is_finite)
        return Moments(*statistics, size * self._positions, size)

    def _bounded_moments(self, bounds: Bounds) -> Moments:
        if self.segments is not None and is_exporting():
            raise AdaptationError(
                f"layer '{self.layer}' bounds the influence of the examples of each group, which an exported graph "
                "cannot; adapt with robust=False, or without a group"
            )
        mean, var = self.example_moments()
        if self._sync:
            mean, var = gather_examples(torch.cat([mean, var], 1), self._adaptation.shared.process_group).chunk(2, 1)
        is_finite = is_finite_example(mean, var)
        size = is_finite.sum().double() if self._sync else self._count_finite(is_finite)
        statistics, between = bounded_moments(mean, var, is_finite, self.eps, bounds, size, self.segments)
        return Moments(*statistics, size * self._positions, size, between)

    def _count_finite(self, is_finite: Tensor) -> int | Tensor:
        """How many examples are finite, in each segment if there are any; where that cannot be known, all."""
        if is_readable(is_finite):
            can_leave_out = self._can_leave_out(is_finite)
            if self.segments is None:
                self.is_rejected = self.bad_rows > 0 and not can_leave_out
                return self._examples - self.bad_rows if can_leave_out else self._examples
            if not self.bad_rows:
                return self.size
        if self.segments is not None:
            return self.segments.sum(is_finite.long()[:, None])
        return is_finite.sum() if self._is_masked else self._examples

    def _bounds(self) -> Bounds | None:
        """How the influence of examples is bounded. What the bounds do to clean examples is corrected as far as it is
        known; wide bounds hardly do anything to them."""
        limit = self._adaptation.shared.limit
        if limit is None:
            return None
        limit = WIDE if self._is_in_batch_pass else limit
        calibration, source, device = self.calibration, self.source, self._x.device
        if calibration is None:
            return None if source is None else Bounds(limit, source.var, 1.0, None)
        clipping = None if limit == WIDE else calibration.clipping
        moved = calibration.to(device)
        return Bounds(limit, moved.var, moved.scatter, None if clipping is None else clipping.to(device))

    @property
    def _is_masked(self) -> bool:
        """Whether this is a graph that is compiled for this process: it cannot look, and masks instead. On a GPU one
        batch is summed in a single reduction."""
        is_supported = self.segments is not None or self._x.is_cpu
        return is_supported and not self._sync and is_tracing() and not is_exporting()

    @property
    def _positions(self) -> int:
        """How many values an example has per channel."""
        return self._rows_per_example * math.prod(self._x.shape[2:])

    def _can_leave_out(self, is_finite: Tensor) -> bool:
        """Count the examples that are not finite. Whether they can be left out, because there are some and others."""
        self.bad_rows = len(is_finite) - int(is_finite.sum())
        return 0 < self.bad_rows < len(is_finite)

    def _between(self) -> Tensor:
        """The biased variance of the examples' means."""
        mean, _ = self.example_moments()
        is_finite = mean.detach().isfinite().all(1)
        batch = self.moments(allow_single_value=True)
        if self.segments is not None or self._is_masked:
            total = batch.mean if self.segments is None else self.segments.repeat(batch.mean)
            spread = torch.where(is_finite[:, None], (mean - total).square(), 0.0)
            return (spread.sum(0) if self.segments is None else self.segments.sum(spread)) / batch.n
        if self.bad_rows:
            mean = mean[is_finite]
        if not self._sync:
            return mean.var(0, correction=0)
        zeros = mean.sum(0)
        var, total = torch.var_mean(mean, 0, correction=0) if len(mean) else (zeros, zeros)
        return pool_over_processes(Moments(total, var, len(mean), len(mean)), self._adaptation.shared.process_group).var

    def _check_single_values(self, segments: Sequence[int] | None = None) -> None:
        """Raise an error if the batch, or one of these segments, has a single value per channel."""
        if self.segments is None:
            if self._examples * self._positions - self.bad_rows * self._positions == 1 and not self._sync:
                raise undefined_variance_error(self.layer, self._x)
        elif self._positions == 1 and not self._call.selection.names:
            if self.segments.sizes == [1]:
                raise undefined_variance_error(self.layer, self._x)
        elif self._positions == 1:
            given = self.segments.sizes
            is_known = isinstance(self.size, Tensor) and is_readable(self.size)
            left = self.size.flatten().tolist() if is_known else given  # type: ignore[union-attr]
            for segment in range(len(given)) if segments is None else segments:
                if 1 in (given[segment], left[segment]):
                    stream = self._call.selection.names[segment]
                    raise AdaptationError(
                        f"layer '{self.layer}' got one value per channel for stream '{stream}', which has "
                        "no variance, so that the stream's own statistics are undefined; predict more of its "
                        "examples at once, or use strategy 'prior' (mixes in the source statistics) or 'ema' "
                        "(averages over the stream)"
                    )


class _PartObservation(Observation):
    """What a strategy sees of a call if it is asked about some of the streams."""

    def __init__(self, whole: Observation, part: PassPart) -> None:
        self._whole, self._part = whole, part
        self.size = self._select(whole.size)
        composition = whole.composition
        self.composition = None if composition is None else Composition(*map(self._select, composition))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    @property
    def seen(self) -> Statistics | None:
        return None if self._whole.seen is None else Statistics(*map(self._select, self._whole.seen))

    def moments(self, *, allow_single_value: bool = False, may_wait: bool = False) -> Moments:
        batch = Moments(*map(self._select, self._whole.moments(allow_single_value=True, may_wait=may_wait)))
        if not allow_single_value:
            assert self._part is not None
            self._whole._check_single_values(self._part.streams)
        self.size = batch.size
        return batch

    def example_mean_variance(self) -> Tensor | None:
        return self._select(self._whole.example_mean_variance())  # type: ignore[no-any-return]

    def _select(self, values: Any) -> Any:
        assert self._part is not None
        return values.index_select(0, self._part.index(values.device)) if isinstance(values, Tensor) else values


def _is_known_finite(mean: Tensor, var: Tensor) -> bool:
    """Whether statistics are finite. One product looks at all values; it may overflow, so that False means: look."""
    mean, var = mean.detach(), var.detach()
    return math.isfinite(mean.flatten().dot(var.flatten()).item())


def undefined_variance_error(layer: str, x: Tensor) -> AdaptationError:
    return AdaptationError(
        f"layer '{layer}' got a batch of shape {tuple(x.shape)}: one value per channel has no variance, so the "
        "batch's own statistics are undefined. Predict more examples at once, or use strategy 'prior' "
        "(mixes in the source statistics) or 'ema' (averages over the stream)."
    )
