"""What a strategy may look at when it decides on a layer's statistics."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from predbn.common import AdaptationError

from . import kernels
from .calibration import Calibration
from .distributed import pool_over_processes
from .statistics import Moments, Statistics
from .stream import LayerState, Stream


class Observation:
    """One call of one layer, seen by a strategy. Nothing is computed before it is asked for.

    `layer`        the layer's name
    `layers`       how many layers are adapted with it
    `eps`          what is added to the variance
    `size`         how many examples the batch has
    `source`       the statistics stored in training; None for a layer that never tracked any
    `calibration`  what `calibrate` left for the layer; None without it
    `state`        a dictionary that lives as long as the stream, the strategy's to fill
    """

    def __init__(
        self,
        x: Tensor,
        *,
        layer: str,
        layers: int = 1,
        eps: float,
        source: Statistics | None,
        calibration: Calibration | None,
        stream: Stream,
        process_group: Any = None,
        sync: bool = False,
        group: int | None = None,
    ) -> None:
        self.layer = layer
        self.layers = layers
        self.source = source
        self.calibration = calibration
        self.size = x.shape[0] if group is None else group
        if group is not None and x.shape[0] % group:
            raise AdaptationError(
                f"layer '{layer}' got {x.shape[0]} examples in groups of {group}, which leaves some over: "
                "predict a multiple of the group"
            )
        self._x = x
        self.eps = eps
        self._stream = stream
        self._group = group
        self._sync = sync and dist.is_available() and dist.is_initialized()
        self._process_group = process_group
        self._moments: Moments | None = None

    @property
    def state(self) -> LayerState:
        return self._stream.state(self.layer)

    def count_pass(self) -> int:
        """How many passes of this stream through the model have begun, this one included. To be called
        once for each batch that a strategy wants counted."""
        return self._stream.count_pass(self.layer)

    def moments(self, *, defined: bool = True) -> Moments:
        """The batch's moments, over all processes where the adaptation is synchronised; [G, C] where the
        batch is G groups. With `defined`, a batch of one value a channel, which has no variance, is an error."""
        if self._moments is None:
            self._moments = self._compute()
        if defined and self._moments.values <= 1 and (self._group is not None or self._x.numel() <= self._x.shape[1]):
            raise undefined_variance(self.layer, self._x)
        return self._moments

    def _compute(self) -> Moments:
        x = self._x
        if self._group is not None:
            return Moments(*kernels.group_moments(x, self._group), self._group * x[0, 0].numel(), self._group)
        values = x.numel() // x.shape[1]
        if x.shape[0] == 0:
            zeros = torch.zeros(2, x.shape[1], dtype=kernels.stats_dtype(x), device=x.device)
            mean, var = zeros[0], zeros[1]
        else:
            mean, var = kernels.moments(x, self.eps)
        moments = Moments(mean, var, values, x.shape[0])
        return pool_over_processes(moments, self._process_group) if self._sync else moments

    def example_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and mean square of each local example and channel, [N, C] each, in one pass."""
        return kernels.example_moments(self._x)

    def between(self) -> Tensor | None:
        """The unbiased variance of the means of the batch's examples, [C] or [G, C], over all processes where the
        adaptation is synchronised; None for a single example, which has none."""
        means = kernels.example_means(self._x)
        if self._group is not None:
            return means.unflatten(0, (-1, self._group)).var(1) if self._group > 1 else None
        if not self._sync:
            return means.var(0) if self.size > 1 else None
        zeros = means.sum(0)
        var, mean = torch.var_mean(means, 0, correction=0) if self.size else (zeros, zeros)
        pooled = pool_over_processes(Moments(mean, var, self.size, self.size), self._process_group)
        return pooled.var * (pooled.size / torch.as_tensor(pooled.size - 1).clamp(min=1))

    def for_examples(self, statistics: Statistics) -> Statistics:
        """Statistics of groups, [G, C], as those of their examples, [N, C]; all others as they are."""
        if self._group is None or statistics.mean.dim() == 1:
            return statistics
        wanted = (-1, self._group, -1)
        return Statistics(*(t[:, None].expand(wanted).flatten(0, 1) for t in statistics))

    @property
    def batch_seen(self) -> Statistics | None:
        """The batch's statistics if the strategy has asked for them and there is one batch."""
        return None if self._moments is None or self._group is not None else self._moments.statistics


def undefined_variance(layer: str, x: Tensor) -> AdaptationError:
    return AdaptationError(
        f"layer '{layer}' got a batch of shape {tuple(x.shape)}: one value per channel has no variance, so the "
        "batch's own statistics are undefined. Predict more examples at once, or use strategy 'prior' "
        "(mixes in the source statistics) or 'ema' (averages over the stream)."
    )
