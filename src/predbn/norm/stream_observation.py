"""What a strategy sees of a layer's call if the rows of its input belong to several streams.

The moments of all S streams, [S, C], come from sums over the rows of each stream (`kernels.stream_moments`): with the
mean m_i and variance v_i of its n examples, a stream has

    μ = Σ m_i / n,    σ² = Σ (v_i + (m_i − μ)²) / n.

No row of one stream enters into the sums of another, and examples that are not finite are left out, on a GPU too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from predbn.common import AdaptationError

from . import kernels
from .composition import Composition
from .cpu_robust import robust_moments_on_cpu
from .gpu.rules import MOST_EXAMPLES, Mix, Mixture, Past, Rule
from .mixed_pass import MixedPass, PassPart
from .observation import Observation, is_known_finite
from .passes import Stream
from .robust import RobustMoments, is_finite_example, robust_moments
from .statistics import Moments, Statistics
from .stream_rows import StreamRows

if TYPE_CHECKING:
    from .strategies import Strategy


class StreamObservation(Observation):
    """One call of one layer with rows of S streams. Moments and states have a first dimension of streams.

    `size` is how many examples each stream has, [S, 1], without those that are not finite once the moments are known.
    `index` are the streams that a strategy is asked about, as whole numbers of 32 bits; None for all.
    """

    has_streams: ClassVar[bool] = True

    def __init__(self, x: Tensor, rows: StreamRows, memory: MixedPass | Stream, **arguments: Any) -> None:
        self._parts = memory.parts() if isinstance(memory, MixedPass) else []
        super().__init__(x, memory=self._parts[0] if isinstance(memory, MixedPass) else memory, **arguments)
        if len(rows) * self._rows_per_example != len(x):
            raise AdaptationError(
                f"layer '{self.layer}' got {len(x)} rows for the {len(rows)} examples of predbn.streams(model, …), so "
                "that it is unknown which row belongs to which stream; predict one stream at a time"
            )
        self._rows = rows
        self.index: Tensor | None = None
        self._positions = self._rows_per_example * math.prod(x.shape[2:])
        self.size = self._sizes = rows.size_tensor(x)

    def normalise_with_kernels(
        self, strategy: Strategy, weight: Tensor | None, bias: Tensor | None, *, keep_used: bool = False
    ) -> Tensor | None:
        """As for a single stream, with two launches more for each stage of streams after the first."""
        if not self._can_use_kernels(weight, bias):
            return None
        x, sizes = self._x, self._rows.sizes
        bounds = self._bounds_for_kernels()
        if (self._positions == 1 and 1 in sizes) or (bounds is not None and max(sizes) > MOST_EXAMPLES):
            return None
        parts = [self] if len(self._parts) <= 1 else [_ObservationPart(self, part) for part in self._parts]
        rules: list[tuple[Rule, Tensor | None]] = []
        for part in parts:
            rule = strategy.rule(part)
            if rule is None or (isinstance(rule, Mixture) and not rule.is_on(x.device)):
                return None
            rules.append((rule, part.index))
        from .gpu.layer import normalise_streams_by_rule

        rows = self._rows
        segments, is_bad = rows.segments(x.device), rows.zeros(x.device)
        y, batch, used = normalise_streams_by_rule(x, weight, bias, self.eps, rules, bounds, segments, is_bad)
        self._moments = Moments(*batch, rows.value_counts(x, self._positions), self._sizes)
        self.used = used
        for part, (rule, _) in zip(parts, rules, strict=True):
            if not (isinstance(rule, Mix) and (rule.in_place or rule.reference is None)):
                strategy.save(part, rule, used if isinstance(rule, Past) else Statistics(*map(part._of_part, used)))
        return y

    def choose(self, strategy: Strategy) -> Statistics:
        """The statistics of each row that a strategy chooses; `used` are those of each stream."""
        self.used = self._chosen(strategy)
        return self.per_row(self.used)

    def _chosen(self, strategy: Strategy) -> Statistics:
        """The strategy is asked once for the streams of each stage."""
        if len(self._parts) <= 1:
            return strategy.statistics(self)
        chosen = [strategy.statistics(_ObservationPart(self, part)) for part in self._parts]
        order = torch.cat([part.index(self._x.device) for part in self._parts]).argsort()
        mean, var = (
            torch.cat([t.expand(len(part.streams), -1) for t, part in zip(values, self._parts, strict=True)])
            for values in zip(*chosen, strict=True)
        )
        return Statistics(*(t.index_select(0, order) for t in (mean, var)))

    def moments(self, *, allow_single_value: bool = False, may_wait: bool = False) -> Moments:
        """The moments of each stream, [S, C]."""
        if self._moments is None:
            self._moments = self._compute_moments(may_wait)
        if not allow_single_value:
            self._check_single_values(range(len(self._rows.names)))
        return self._moments

    def _compute_moments(self, may_wait: bool) -> Moments:
        clean = self._clean if self._robust else None
        if clean is not None:
            statistics = self._robust_statistics(clean)
        elif self._x.is_cpu and not self._rows.is_static:
            statistics = self._statistics_on_cpu()
        else:
            statistics = self._statistics_without_waiting()
        return Moments(*statistics, self._sizes * self._positions, self._sizes)

    def _statistics_on_cpu(self) -> Statistics:
        """Rows that are not finite are looked for only if the moments are not."""
        x, index, sizes = self._x, self._rows.index(self._x, self._rows_per_example), self._sizes
        mean, var = kernels.stream_moments(x, index, sizes * self._rows_per_example, self.eps, self._rows.group)
        if not is_known_finite(mean, var) and self._find_bad_rows():
            is_good = self._is_good_row()
            sizes = self._sizes * self._rows_per_example
            mean, var = kernels.stream_moments(x[is_good], index[is_good], sizes, self.eps)
        return Statistics(mean, var)

    def _statistics_without_waiting(self) -> Statistics:
        mean, var = self._example_statistics()
        self._leave_out(mean.detach().isfinite().all(1))
        mean = self._without_bad_rows(mean)
        stream_mean = self._mean_of_streams(mean)
        spread = self._without_bad_rows(var + (mean - self._rows.repeat(stream_mean)).square())
        return Statistics(stream_mean, self._mean_of_streams(spread))

    def _leave_out(self, is_good: Tensor) -> bool:
        if is_good.is_cpu:
            self.bad_rows = len(is_good) - int(is_good.sum())
            if self.bad_rows == 0:
                return False
        self._is_good = is_good
        self.size = self._sizes = self._rows.sum(is_good.long()[:, None])
        return True

    def _robust_statistics(self, clean: Statistics) -> Statistics:
        """Streams of about the same size are handled together, as groups."""
        mean, var = self._example_statistics()
        scatter, group = self._scatter(mean), self._rows.group
        is_readable = kernels.readable_without_sync(mean) and not clean.var.requires_grad
        if group is not None and is_readable and is_known_finite(mean, var):
            found = robust_moments_on_cpu(mean, var, self.eps, clean.var, scatter, group, self._bounds)
            return self._corrected(found, self._sizes.to(mean.dtype))
        is_good = is_finite_example(mean, var)
        self._leave_out(is_good)
        parts = [
            robust_moments(
                mean.index_select(0, equal.rows),
                var.index_select(0, equal.rows),
                is_good[equal.rows] & equal.is_row,
                self.eps,
                clean.var,
                scatter,
                equal.size,
                self._bounds,
            )
            for equal in self._rows.equal_streams(mean)
        ]
        found = parts[0]
        if len(parts) > 1:
            order = torch.cat([equal.streams for equal in self._rows.equal_streams(mean)]).argsort()
            found = RobustMoments(*(torch.cat(values)[order] for values in zip(*parts, strict=True)))
        return self._corrected(found, self._sizes.to(mean.dtype))

    def _without_bad_rows(self, values: Tensor) -> Tensor:
        return values if self._is_good is None else torch.where(self._is_good[:, None], values, 0.0)

    def _mean_of_streams(self, values: Tensor) -> Tensor:
        return self._rows.sum(values) / self._sizes

    def example_mean_variance(self) -> Tensor | None:
        """The unbiased variance of the means of each stream's examples, [S, C]; 0 for a single example."""
        mean = self.moments(allow_single_value=True).mean
        if self._between is None:
            means = self._mean_of_rows(kernels.example_means(self._x))
            spread = self._without_bad_rows((means - self._rows.repeat(mean)).square())
            self._between = self._mean_of_streams(spread)
        return self._between * (self._sizes / (self._sizes - 1).clamp(min=1)).to(mean.dtype)

    def _of_part(self, values: Any) -> Any:
        """Of values of all streams, those of the streams that the strategy is asked about."""
        return values

    def _check_single_values(self, streams: Iterable[int]) -> None:
        """Raise an error if one of these streams has a single value per channel."""
        if self._positions > 1:
            return
        can_look = self._sizes.is_cpu and not self._rows.is_static
        good = self._sizes[:, 0].tolist() if can_look else self._rows.sizes
        for stream in streams:
            if 1 in (self._rows.sizes[stream], good[stream]):
                raise AdaptationError(
                    f"layer '{self.layer}' got one value per channel for stream '{self._rows.names[stream]}', which "
                    "has no variance, so that the stream's own statistics are undefined; predict more of its examples "
                    "at once, or use strategy 'prior' (mixes in the source statistics) or 'ema' (averages over the "
                    "stream)"
                )

    def per_row(self, statistics: Statistics) -> Statistics:
        """Repeat the statistics of streams, [S, C], for each of their rows, unless these follow each other."""
        if statistics.mean.dim() == 1 or self._rows.group is not None:
            return statistics
        repeated = (self._rows.repeat(t) for t in statistics)
        rows = self._rows_per_example
        return Statistics(*(t if rows == 1 else t.repeat_interleave(rows, 0) for t in repeated))

    @property
    def batch_statistics(self) -> None:
        """A batch of several streams has no statistics of its own."""


class _ObservationPart(StreamObservation):
    """The same for the streams of one stage."""

    def __init__(self, whole: StreamObservation, part: PassPart) -> None:
        self.__dict__.update(whole.__dict__)
        self._whole, self._memory, self._streams = whole, part, part.streams
        self.index = part.index(self._x.device)
        self.size = self._of_part(whole.size)
        if self.composition is not None:
            self.composition = Composition(*map(self._of_part, self.composition))

    def moments(self, *, allow_single_value: bool = False, may_wait: bool = False) -> Moments:
        moments = Moments(*map(self._of_part, self._whole.moments(allow_single_value=True, may_wait=may_wait)))
        if not allow_single_value:
            self._whole._check_single_values(self._streams)
        self.size = moments.size
        return moments

    def example_mean_variance(self) -> Tensor | None:
        return self._of_part(self._whole.example_mean_variance())  # type: ignore[no-any-return]

    def _of_part(self, values: Any) -> Any:
        assert self.index is not None
        return values.index_select(0, self.index) if isinstance(values, Tensor) else values


def new_observation(x: Tensor, rows: StreamRows | None, **arguments: Any) -> Observation:
    """What a strategy sees of a call, whether all rows belong to one stream or not."""
    return Observation(x, **arguments) if rows is None else StreamObservation(x, rows, **arguments)
