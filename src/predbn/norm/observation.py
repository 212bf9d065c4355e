"""What a strategy can look at when it chooses a layer's statistics, and what it remembers of a stream."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from predbn.common import AdaptationError

from . import kernels
from .calibration import Calibration
from .statistics import Moments, Statistics, pool_over_processes

LayerState: TypeAlias = dict[str, "Tensor | int"]


class Stream:
    """The states of all layers for one source of data (a camera, a region, a user).

    Passes through the model are counted by the layer that was called first: when it is called again, the next pass has
    begun. All other layers, such as a detection head that is shared by all scales, may be called several times in one
    pass.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.states: dict[str, LayerState] = {}
        self.first_layer: str | None = None
        self.passes = 0

    def state(self, layer: str) -> LayerState:
        return self.states.setdefault(layer, {})

    def count_pass(self, layer: str) -> int:
        if self.first_layer is None:
            self.first_layer = layer
        if layer == self.first_layer:
            self.passes += 1
        return self.passes


class Observation:
    """One call of one layer, as a strategy sees it. Everything is computed only when it is asked for.

    `layer`        the layer's name
    `layer_count`  how many layers are adapted together with this one, itself included
    `eps`          what is added to the variance
    `size`         how many examples the batch has; an example may be several rows of the layer's input, such as tokens
    `source`       the statistics stored in training; None for a layer that never tracked any
    `calibration`  what `calibrate` measured for the layer; None without calibration
    `state`        a dictionary for the strategy's own use that lives as long as the stream
    """

    def __init__(
        self,
        x: Tensor,
        *,
        layer: str,
        layer_count: int,
        eps: float,
        source: Statistics | None,
        calibration: Calibration | None,
        stream: Stream,
        process_group: Any = None,
        sync: bool = False,
        group: int | None = None,
        examples: int | None = None,
    ) -> None:
        self.layer = layer
        self.layer_count = layer_count
        self.source = source
        self.calibration = calibration
        examples = x.shape[0] if examples is None else examples
        self.size = examples if group is None else group
        if group is not None and examples % group:
            raise AdaptationError(
                f"layer '{layer}' got {examples} examples in groups of {group}, which leaves some over: "
                "predict a multiple of the group"
            )
        self._rows_per_example = 1 if x.shape[0] == examples else x.shape[0] // examples
        self._x = x
        self.eps = eps
        self._stream = stream
        self._group = group
        self._sync = sync and dist.is_available() and dist.is_initialized()
        if self._sync and (torch.compiler.is_exporting() or torch.jit.is_tracing()):
            raise AdaptationError(
                "sync=True takes statistics over processes, which an exported graph cannot; export with sync=False"
            )
        self._process_group = process_group
        self._moments: Moments | None = None

    @property
    def state(self) -> LayerState:
        return self._stream.state(self.layer)

    def count_pass(self) -> int:
        """How many passes of this stream through the model have begun, including this one.

        A strategy that counts calls this once in every pass.
        """
        return self._stream.count_pass(self.layer)

    def moments(self, *, allow_single_value: bool = False) -> Moments:
        """The batch's moments, over all processes if the adaptation is synchronised; [G, C] for a batch of G groups.

        A single value per channel has no variance. That is an error, unless `allow_single_value` is set.
        """
        if self._moments is None:
            self._moments = self._compute_moments()
        if (
            not allow_single_value
            and self._moments.values <= 1
            and (self._group is not None or self._x.numel() <= self._x.shape[1])
        ):
            raise undefined_variance_error(self.layer, self._x)
        return self._moments

    def _compute_moments(self) -> Moments:
        x = self._x
        if self._group is not None:
            rows = self._group * self._rows_per_example
            return Moments(*kernels.group_moments(x, rows), rows * x[0, 0].numel(), self._group)
        if x.shape[0] == 0:
            zeros = x.sum(kernels.dims_without_channels(x), dtype=kernels.stats_dtype(x))
            mean, var = zeros, zeros
        else:
            mean, var = kernels.moments(x, self.eps)
        moments = Moments(mean, var, x.numel() // x.shape[1], self.size)
        return pool_over_processes(moments, self._process_group) if self._sync else moments

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
        means = self._mean_of_rows(kernels.example_means(self._x))
        if self._group == 1:
            return None
        if self._group is not None and torch.compiler.is_exporting():
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

    def per_row(self, statistics: Statistics) -> Statistics:
        """Repeat the statistics of groups, [G, C], or of examples, [N, C], for each of their rows.

        In an exported graph those of groups are repeated already.
        """
        rows = self._rows_per_example * (self._group or 1)
        if statistics.mean.dim() == 1 or rows == 1:
            return statistics
        if self._group is not None and torch.compiler.is_exporting():
            return statistics
        return Statistics(*(t[:, None].expand(-1, rows, -1).flatten(0, 1) for t in statistics))

    @property
    def batch_statistics(self) -> Statistics | None:
        """The batch's own statistics if the strategy has asked for them; None for groups."""
        return None if self._moments is None or self._group is not None else self._moments.statistics


def undefined_variance_error(layer: str, x: Tensor) -> AdaptationError:
    return AdaptationError(
        f"layer '{layer}' got a batch of shape {tuple(x.shape)}: one value per channel has no variance, so the "
        "batch's own statistics are undefined. Predict more examples at once, or use strategy 'prior' "
        "(mixes in the source statistics) or 'ema' (averages over the stream)."
    )
