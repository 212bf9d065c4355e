"""What a strategy can look at when it chooses a layer's statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from predbn.common import AdaptationError

from . import kernels
from .calibration import Calibration
from .composition import Composition
from .gpu.operators import bounded_moments, mixed_moments
from .gpu.rules import MOST_CHANNELS, MOST_EXAMPLES, Bounds, Fixed, Mix, Mixture, Past
from .joined_states import JoinedStates
from .mixed_pass import PassPart
from .passes import Pass, Stream
from .robust import NARROW, WIDE, RobustMoments, correct_clipping, is_finite_example, robust_moments
from .statistics import Moments, Statistics, gather_examples, mix, pool_over_processes
from .stream_rows import whole_batch
from .stream_table import LayerColumns, LayerState, joined_columns

if TYPE_CHECKING:
    from .adapted_layer import Adaptation
    from .strategies import Strategy


class Observation:
    """One call of one layer, as a strategy sees it. Everything is computed only when it is asked for.

    Rows (examples) that are not finite are left out of the moments on a CPU, where a look at the moments tells that
    there are some. On a GPU that would mean to wait for it in every layer. There they spoil the batch, but no state
    (see `Pass.end`), no population statistics and no calibration.

    `layer`        the layer's name
    `layer_count`  how many layers are adapted together with this one, itself included
    `eps`          what is added to the variance
    `size`         how many examples the batch has, without those that are not finite once the moments are known;
                   an example may be several rows of the layer's input, such as tokens
    `bad_rows`     how many examples were left out because they are not finite
    `source`       the statistics stored in training; None for a layer that never tracked any
    `composition`  which classes the batch holds; None unless the strategy predicts a batch several times
    `calibration`  what `calibrate` measured for the layer; None without calibration
    `state`        a dictionary for the strategy's own use that lives as long as the stream
    """

    has_streams: ClassVar[bool] = False
    """Whether the batch has several streams, so that moments and the tensors in `state` have a dimension of streams."""

    def __init__(
        self,
        x: Tensor,
        *,
        layer: str,
        shared: Adaptation,
        eps: float,
        source: Statistics | None,
        calibration: Calibration | None,
        memory: Stream | Pass | PassPart,
        examples: int,
        composition: Composition | None = None,
    ) -> None:
        self.layer = layer
        self.layer_count = shared.layer_count
        self.source = self.stored_source = source
        """The statistics that were stored in training: `source` may be replaced by a converted copy, and the second is
        what the layer holds."""
        self.calibration = calibration
        self.composition = composition
        self._group = group = shared.group
        self._robust = shared.robust
        self._bounds = WIDE if shared.strategy.follows_classes else NARROW
        self.size: int | Tensor = examples if group is None else group
        if group is not None and examples % group:
            raise AdaptationError(
                f"layer '{layer}' got {examples} examples in groups of {group}, which leaves some over: "
                "predict a multiple of the group"
            )
        self._rows_per_example = 1 if x.shape[0] == examples else x.shape[0] // examples
        self._x = x
        self.bad_rows = 0
        self._is_good: Tensor | None = None
        self._between: Tensor | None = None
        self.used: Statistics | None = None
        self.eps = eps
        self._memory = memory
        self._sync = shared.sync and dist.is_available() and dist.is_initialized()
        if self._sync and (kernels.is_exporting() or torch.jit.is_tracing()):
            raise AdaptationError(
                "sync=True takes statistics over processes, which an exported graph cannot; export with sync=False"
            )
        self._process_group = shared.process_group
        self._moments: Moments | None = None
        self.affine: tuple[Tensor | None, Tensor | None] = None, None
        """Weight and bias of the layer, as it holds them."""
        self.scale_and_shift: tuple[Tensor, Tensor] | None = None
        """Of x·scale + shift, if an operator of a compiled graph has computed them with the chosen statistics."""
        self._scaled: Statistics | None = None
        """The statistics that these belong to."""
        self.recording: Any = None
        """What the kernels have been launched with, if they were (`gpu/launch.py`)."""
        self.joined_state: JoinedStates | None = None
        """What they have changed in place, if they have."""

    @property
    def state(self) -> LayerState:
        return self._memory.state(self.layer)

    def state_in_place(self) -> LayerState | None:
        """The same for kernels, which change the tensors in place; None if they cannot."""
        if isinstance(self._memory, Pass):
            joined = self._memory.joined(self.layer)
            return None if joined is None else joined.state(self.layer)
        return self.state if isinstance(self._memory, PassPart) else None

    def state_columns(self, keys: Sequence[str]) -> LayerColumns | None:
        """The same as columns of a matrix: where the tensors with these keys are; None if kernels cannot read them.

        They may be changed in place unless it is a copy: in the rows of several streams (`stream_table.py`), and in the
        vector of a single one (`joined_states.py`).
        """
        if isinstance(self._memory, PassPart):
            return self._memory.states.columns(self.layer, self._x.device, keys)
        if not isinstance(self._memory, Pass):
            return None
        joined = self._memory.joined(self.layer)
        if joined is None or self.layer in self._memory.changed:
            return joined_columns(self.state, self._x.device, keys)
        offsets = joined.layout.offsets(self.layer, keys)
        return LayerColumns(joined.layout.places[self.layer].keys(), joined.vector[None], offsets)

    def take_state(self, key: str) -> None:
        """Kernels have used this tensor of the state up."""
        if isinstance(self._memory, PassPart):
            self._memory.states.take(self.layer, key)
        elif isinstance(self._memory, Pass):
            self._memory.take(self.layer, key)

    def count_pass(self) -> int:
        """How many passes of this stream have called the layer, including this one.

        Only for strategies with `keeps_state`. Several calls in one pass count once.
        """
        assert not isinstance(self._memory, Stream)
        return self._memory.count(self.layer)

    def moments(self, *, allow_single_value: bool = False, may_wait: bool = False) -> Moments:
        """The batch's moments, over all processes if the adaptation is synchronised; [G, C] for a batch of G groups.

        A single value per channel has no variance. That is an error, unless `allow_single_value` is set. With
        `may_wait`, rows that are not finite are left out on a GPU too.
        """
        if self._moments is None:
            self._moments = self._compute_moments(may_wait)
        if (
            not allow_single_value
            and self._moments.values <= 1
            and (self._group is not None or self._x.numel() <= self._x.shape[1] * (1 + self.bad_rows))
        ):
            raise undefined_variance_error(self.layer, self._x)
        return self._moments

    def mixed(
        self, reference: Statistics | None = None, share: float | None = None, source_size: float | None = None
    ) -> Statistics:
        """reference + w·(batch − reference) with w = `share`; or, for N = `source_size`, with the source and
        w = n/(n + N). The moments of the batch if there is neither."""
        if self._can_mix_by_operator:
            return self._mixed_by_operator(reference, share, source_size)
        reference = self.source if source_size is not None else reference
        if reference is None:
            return self.moments().statistics
        batch = self.moments(allow_single_value=share != 1)
        weight = batch.n / (batch.n + source_size) if source_size is not None else share
        reference = Statistics(reference.mean.to(batch.mean), reference.var.to(batch.var))
        return mix(reference, batch.statistics, weight)  # type: ignore[arg-type]

    @property
    def _can_mix_by_operator(self) -> bool:
        x = self._x
        if not kernels.can_mix_in_graph(x) or self._sync or self._group is not None or self.eps <= 0:
            return False
        if kernels.needs_gradients(*self.affine):
            return False
        is_bounded = self._robust and self._clean is not None
        return not is_bounded and not self.has_streams and self._rows_per_example == 1 and x.numel() > x.shape[1]

    def _mixed_by_operator(
        self, reference: Statistics | None, share: float | None, source_size: float | None
    ) -> Statistics:
        """The same in one operator of a compiled graph, which converts what it reads."""
        x = self._x
        reference = self.stored_source if source_size is not None else reference
        mean, var = (None, None) if reference is None else reference
        if mean is not None and var is not None and mean.device != x.device:
            mean, var = mean.to(x.device), var.to(x.device)
        found = mixed_moments(x, mean, var, share, source_size or 0.0, *self.affine, self.eps)
        self._moments = Moments(found[0], found[1], x.numel() // x.shape[1], self.size)
        chosen = Statistics(found[2], found[3])
        self.keep_scale_and_shift(chosen, found[4], found[5])
        return chosen

    def keep_scale_and_shift(self, statistics: Statistics, scale: Tensor, shift: Tensor) -> None:
        """Let the input be normalised as x·scale + shift if these statistics are chosen, and it is precise enough."""
        if kernels.can_scale_in_graph(self._x) and self.eps > 0 and not kernels.needs_gradients(*self.affine):
            self.scale_and_shift, self._scaled = (scale, shift), statistics

    def _compute_moments(self, may_wait: bool) -> Moments:
        x = self._x
        clean = self._clean if self._robust and (x.shape[0] > 0 or self._sync) else None
        if clean is not None:
            return self._robust_moments(clean)
        if self._group is not None:
            rows = self._group * self._rows_per_example
            mean, var = kernels.group_moments(x, rows)
            if not is_known_finite(mean, var, may_wait):
                mean, var = self._moments_of_good_rows_in_groups(mean, var)
            return Moments(mean, var, rows * x[0, 0].numel(), self._group)
        if x.shape[0] == 0:
            zeros = x.sum(kernels.dims_without_channels(x), dtype=kernels.stats_dtype(x))
            mean, var = zeros, zeros
        else:
            mean, var = kernels.moments(x, self.eps)
            if not is_known_finite(mean, var, may_wait) and self._find_bad_rows():
                x = x[self._is_good_row()]
                mean, var = kernels.moments(x, self.eps)
        moments = Moments(mean, var, x.numel() // x.shape[1], self.size)
        return pool_over_processes(moments, self._process_group) if self._sync else moments

    def _robust_moments(self, clean: Statistics) -> Moments:
        if self._group is not None and kernels.is_exporting():
            raise AdaptationError(
                f"layer '{self.layer}' bounds the influence of the examples of each group, which an exported graph "
                "cannot; adapt with robust=False, or without a group"
            )
        is_one_row = self._rows_per_example == 1 and not self._sync
        if is_one_row and kernels.can_use_operators(self._x) and self.size <= MOST_EXAMPLES:
            return self._moments_by_operator(clean)
        mean, var = self._example_statistics()
        is_finite = is_finite_example(mean, var)
        if kernels.readable_without_sync(mean) and not self._leave_out(is_finite) and self.bad_rows:
            self._reject_pass()
        size: int | Tensor = self.size
        if self._sync:
            mean, var = gather_examples(torch.cat([mean, var], 1), self._process_group).chunk(2, 1)
            is_finite = is_finite_example(mean, var)
            size = is_finite.sum().double()
        scatter = self._scatter(mean)
        found = robust_moments(mean, var, is_finite, self.eps, clean.var, scatter, self._group, self._bounds)
        return self._counted(self._corrected(found, size), size)

    def _scatter(self, like: Tensor) -> Tensor | float:
        """What `robust_moments` needs to know about clean examples."""
        return 1.0 if self.calibration is None else self.calibration.to(like).scatter

    def _moments_by_operator(self, clean: Statistics) -> Moments:
        """The same, computed by a kernel."""
        x, scatter = self._x, self._scatter(clean.var)
        groups = 1 if self._group is None else x.shape[0] // self._group
        if not isinstance(scatter, Tensor):
            scatter = torch.full_like(clean.var, scatter)
        clipping, evenness = (None if t is None else t.to(clean.var) for t in self._clipping())
        tables, count = bounded_moments(x, groups, self.eps, self._bounds, clean.var, scatter, clipping, evenness)
        if self._group is None:
            tables, count = tables[:, 0], count[0]
        self._between = tables[4]
        return self._counted(Statistics(tables[0], tables[1]), count)

    def _counted(self, statistics: Statistics, size: Tensor | int) -> Moments:
        values = (size if self._sync else self.size) * (self._rows_per_example * math.prod(self._x.shape[2:]))
        return Moments(*statistics, values, size)

    def _corrected(self, found: RobustMoments, size: Tensor | int) -> Statistics:
        """Without what clipping does to `size` clean examples."""
        self._between = found.between
        clipping, evenness = self._clipping()
        if clipping is None:
            return Statistics(found.mean, found.var)
        return correct_clipping(
            found, clipping.to(found.mean), size, 1.0 if evenness is None else evenness.to(found.mean)
        )

    def _example_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of each example and channel, [N, C] each."""
        mean, var = kernels.example_means_and_variances(self._x, self.eps)
        if self._rows_per_example > 1:
            means = mean.unflatten(0, (-1, self._rows_per_example))
            mean = means.mean(1)
            var = self._mean_of_rows(var) + (means - mean[:, None]).square().mean(1)
        return mean, var

    @property
    def _clean(self) -> Statistics | None:
        """The statistics of clean data: calibrated, or stored in training."""
        clean = self.calibration
        return self.source if clean is None else Statistics(clean.mean.to(self._x.device), clean.var.to(self._x.device))

    def _find_bad_rows(self) -> bool:
        """Find the rows that are not finite. False if there is nothing to leave out.

        Then no example is finite, or a variance is too large for its dtype, and the pass must not change any state.
        """
        is_good = self._x.detach().isfinite().flatten(1).all(1)
        if self._rows_per_example > 1:
            is_good = is_good.unflatten(0, (-1, self._rows_per_example)).all(1)
        if not self._leave_out(is_good):
            self._reject_pass()
            return False
        return True

    def _leave_out(self, is_good: Tensor) -> bool:
        """Count the other examples as bad, and leave them out. False if there are none, or no good ones."""
        self.bad_rows = len(is_good) - int(is_good.sum())
        if self.bad_rows in (0, len(is_good)):
            return False
        self._is_good = is_good
        if self._group is None:
            self.size -= self.bad_rows
        return True

    def _reject_pass(self) -> None:
        """This pass must not change any state."""
        if isinstance(self._memory, Pass):
            self._memory.is_rejected = True

    def _is_good_row(self) -> Tensor:
        assert self._is_good is not None
        rows = self._rows_per_example
        return self._is_good if rows == 1 else self._is_good.repeat_interleave(rows)

    def _moments_of_good_rows_in_groups(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        if not self._find_bad_rows():
            return mean, var
        mean, var = mean.clone(), var.clone()
        rows = self.size * self._rows_per_example
        groups = zip(self._x.split(rows), self._is_good_row().split(rows), strict=True)
        for i, (x, is_good) in enumerate(groups):
            if is_good.any() and not is_good.all():
                mean[i], var[i] = kernels.moments(x[is_good], self.eps)
        return mean, var

    def example_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and mean square of each local example and channel, [N, C] each, in one pass."""
        mean, square = kernels.example_moments(self._x)
        return self._mean_of_rows(mean), self._mean_of_rows(square)

    def _mean_of_rows(self, values: Tensor) -> Tensor:
        rows = self._rows_per_example
        return values if rows == 1 else values.unflatten(0, (-1, rows)).mean(1)

    def example_mean_variance(self) -> Tensor | None:
        """The unbiased variance of the examples' means, [C] or [G, C]; None for a single example.

        It is taken over all processes if the adaptation is synchronised.
        """
        if self._between is not None:
            size = self.moments(allow_single_value=True).size
            if isinstance(size, Tensor):
                return self._between * (size / (size - 1).clamp(min=1))
            return self._between * (size / (size - 1)) if size > 1 else None
        means = self._mean_of_rows(kernels.example_means(self._x))
        if self._group == 1:
            return None
        if self._is_good is not None and self._group is None:
            means = means[self._is_good]
        elif self._is_good is not None:  # the mean of the group does not add to the variance
            group_means = self.moments().mean.repeat_interleave(self.size, 0)
            means = torch.where(self._is_good[:, None], means, group_means)
        if self._group is not None and kernels.is_exporting():
            _, var = kernels.group_means_and_variances(means, torch.zeros_like(means), self._group)
            var = var * (self._group / (self._group - 1))
            return var if self._rows_per_example == 1 else var.repeat_interleave(self._rows_per_example, 0)
        if self._group is not None:
            return means.unflatten(0, (-1, self._group)).var(1)  # type: ignore[no-any-return]
        if not self._sync:
            return means.var(0) if self.size > 1 else None
        zeros = means.sum(0)
        var, mean = torch.var_mean(means, 0, correction=0) if self.size else (zeros, zeros)
        pooled = pool_over_processes(Moments(mean, var, self.size, self.size), self._process_group)
        return pooled.var * (pooled.size / torch.as_tensor(pooled.size - 1).clamp(min=1))

    @property
    def can_use_mixture_operator(self) -> bool:
        """Whether the mixture of `auto` may be an operator, which it is in compiled graphs."""
        x = self._x
        is_compiling = torch.compiler.is_dynamo_compiling() and kernels.can_use_operators(x)
        return is_compiling and not self._sync and x.shape[1] <= MOST_CHANNELS

    def normalise_with_kernels(
        self, strategy: Strategy, weight: Tensor | None, bias: Tensor | None, *, keep_used: bool = False
    ) -> Tensor | None:
        """The normalised input if the kernels of a GPU can compute it, in three or four launches; None otherwise.

        With `keep_used`, `used` are then the statistics that it was normalised with.
        """
        if not self._can_use_kernels(weight, bias):
            return None
        x = self._x
        groups = 1 if self._group is None else len(x) // self._group
        values = x.numel() // (x.shape[1] * groups) if groups else 0
        bounds = self._bounds_for_kernels()
        if values <= 1 or (bounds is not None and self.size > MOST_EXAMPLES):
            return None
        rule = strategy.rule(self)
        if rule is None or (isinstance(rule, Mixture) and not rule.is_on(x.device)):
            return None
        from .gpu.launch import new_zeros, recorded
        from .gpu.layer import normalise_by_rule, normalise_streams_by_rule, normalise_with

        if isinstance(rule, Fixed):
            self.used = rule.statistics
            if not all(kernels.can_be_read_by_kernels(t, x) and t.dtype == torch.float32 for t in rule.statistics):
                return None
            with recorded() as self.recording:
                return normalise_with(x, rule.statistics, weight, bias, self.eps)
        with recorded() as self.recording:
            if isinstance(rule, Past):  # the batch is that of a single stream
                segments = whole_batch(x.shape[0]).segments(x.device)
                is_bad = new_zeros(x.shape[0], x.device)
                y, batch, used = normalise_streams_by_rule(
                    x, weight, bias, self.eps, [(rule, None)], bounds, segments, is_bad
                )
            else:
                y, batch, used = normalise_by_rule(x, weight, bias, self.eps, rule, groups, bounds)
        mean, var = (batch.mean[0], batch.var[0]) if self._group is None else batch
        self._moments = Moments(mean, var, values, self.size)
        is_in_place = isinstance(rule, Mix | Past) and rule.in_place
        if is_in_place and isinstance(self._memory, Pass):
            self.joined_state = self._memory.joined(self.layer)
            self._memory.change(self.layer)
        if self._group is None:
            used = Statistics(used.mean[0], used.var[0])
            if not (is_in_place and isinstance(rule, Mix)):
                strategy.save(self, rule, used)
        if keep_used:
            self.used = self.per_row(used)
        return y

    def _can_use_kernels(self, weight: Tensor | None, bias: Tensor | None) -> bool:
        x = self._x
        if self._sync or self.eps <= 0 or self._rows_per_example > 1 or not kernels.can_use_layer_kernels(x):
            return False
        parameters = weight, bias, *(self.source or ())
        return all(kernels.can_be_read_by_kernels(t, x) for t in parameters if t is not None)

    def _bounds_for_kernels(self) -> Bounds | None:
        clean = self._clean if self._robust else None
        if clean is None:
            return None
        calibration = self.calibration
        if calibration is None:
            return Bounds(self._bounds, clean.var, 1.0, None)
        return Bounds(self._bounds, clean.var, calibration.scatter, *self._clipping())

    def _clipping(self) -> tuple[Tensor | None, Tensor | None]:
        """What the bounds do to clean examples, and how much of it is corrected: None for all of it.

        Wide bounds are corrected as far as classes are even; nothing is known about either without a calibration.
        """
        calibration, composition = self.calibration, self.composition
        if calibration is None:
            return None, None
        if self._bounds == NARROW:
            return calibration.clipping, None
        if composition is None or composition.evenness is None or calibration.wide_clipping is None:
            return None, None
        return calibration.wide_clipping, composition.evenness

    def choose(self, strategy: Strategy) -> Statistics:
        """The statistics that a strategy chooses, for each row if they differ; `used` are the same."""
        chosen, scaled = strategy.statistics(self), self._scaled
        if scaled is not None and (chosen.mean is not scaled.mean or chosen.var is not scaled.var):
            self.scale_and_shift = None  # a strategy has made other statistics of what it was given
        self.used = self.per_row(chosen)
        return self.used

    def per_row(self, statistics: Statistics) -> Statistics:
        """Repeat the statistics of groups, [G, C], or of examples, [N, C], for each of their rows.

        In an exported graph those of groups are repeated already.
        """
        rows = self._rows_per_example * (self._group or 1)
        if statistics.mean.dim() == 1 or rows == 1:
            return statistics
        if self._group is not None and kernels.is_exporting():
            return statistics
        return Statistics(*(t[:, None].expand(-1, rows, -1).flatten(0, 1) for t in statistics))

    @property
    def seen(self) -> Statistics | None:
        """The moments that the strategy has asked for, of the batch or of each group or stream; None if it has not."""
        return None if self._moments is None else self._moments.statistics

    @property
    def batch_statistics(self) -> Statistics | None:
        """The batch's own statistics if the strategy has asked for them; None for groups."""
        return None if self._group is not None else self.seen


def is_known_finite(mean: Tensor, var: Tensor, may_wait: bool = False) -> bool:
    """Whether statistics are finite; True if one would have to wait for a GPU to know it.

    One product is enough to look at all values, and takes 1 µs. It may overflow: False means that one should look.
    """
    if not may_wait and (not mean.is_cpu or kernels.is_transformed(mean)):
        return True
    if mean.requires_grad:
        mean, var = mean.detach(), var.detach()
    if mean.dim() > 1:
        mean, var = mean.flatten(), var.flatten()
    return math.isfinite(mean.dot(var).item())


def undefined_variance_error(layer: str, x: Tensor) -> AdaptationError:
    return AdaptationError(
        f"layer '{layer}' got a batch of shape {tuple(x.shape)}: one value per channel has no variance, so the "
        "batch's own statistics are undefined. Predict more examples at once, or use strategy 'prior' "
        "(mixes in the source statistics) or 'ema' (averages over the stream)."
    )
