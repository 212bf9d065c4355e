"""How far each stream of a pass was from the source, in every layer.

`describe` tells it for the last batch of a single stream. A server asks after every pass and for many streams, so here
all layers and streams are measured together, in a few operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from predbn.common import AdaptationError

from .adaptation import LayerAdaptation
from .layer import adapted_layers, source_statistics
from .segments import Segments
from .statistics import Statistics
from .streams.blocks import current_selection


class Drift(NamedTuple):
    """Distances of the streams of N examples in L layers, in source standard deviations, [N, L]; NaN if not known.

    seen   from the source statistics to those that the example's stream has shown in the last pass
    used   from the source statistics to those that the example was normalised with

    `batch` uses all of what it sees; a strategy that takes it for sampling noise uses little.
    """

    seen: Tensor
    used: Tensor


class DriftMeter:
    """Measures the streams of a model's last pass. `layers` are the names of the layers that can be measured."""

    def __init__(self, model: nn.Module) -> None:
        self.layers: list[str] = []
        self._adaptations: list[LayerAdaptation] = []
        sources: list[Statistics] = []
        scales: list[Tensor] = []
        self._sizes: list[int] = []
        for name, layer, adaptation in adapted_layers(model):
            source = source_statistics(layer)
            if source is not None:
                self.layers.append(name)
                self._adaptations.append(adaptation)
                sources.append(Statistics(*(t.detach().float() for t in source)))
                scales.append(1 / (sources[-1].var + adaptation.eps(layer)))
                self._sizes.append(len(scales[-1]))
        if sources:
            self._mean = torch.cat([source.mean for source in sources])
            self._deviation = torch.cat([source.var for source in sources]).clamp(min=0).sqrt()
            # Σ over the channels of a layer of (…)²/(σ_s² + eps), divided by their number, as a product with a matrix.
            self._weights = torch.block_diag(*(scale[:, None] / len(scale) for scale in scales))

    def clear(self) -> None:
        """Before a pass: a layer that it does not call is not known afterwards, whatever an earlier pass has shown."""
        for adaptation in self._adaptations:
            adaptation.seen = adaptation.used = None

    @torch.no_grad()
    def measure(self, examples: int) -> Drift:
        """The drift of a pass of so many examples, in the block of streams in which it was made.

        On the device of the model, and without waiting for it, so that this may be a part of a CUDA graph.
        """
        if not self.layers:
            nothing = torch.empty(examples, 0)
            return Drift(nothing, nothing)
        segments = current_selection(self._adaptations[0].shared).segments
        seen = self._distances([adaptation.seen for adaptation in self._adaptations])
        used = self._distances([adaptation.used for adaptation in self._adaptations])
        return Drift(*(d.expand(examples, -1) if len(d) == 1 else _of_examples(d, segments) for d in (seen, used)))

    def _distances(self, statistics: Sequence[Statistics | None]) -> Tensor:
        """As in `statistics.distance`, for all layers at once, [S, L]; [1, L] if all streams have the same."""
        if all(own is None for own in statistics):
            return self._mean.new_full((1, len(self.layers)), torch.nan)
        streams = max((len(own.mean) for own in statistics if own is not None and own.mean.dim() == 2), default=1)
        sources = self._mean.split(self._sizes)
        known = [own or Statistics(source, source) for own, source in zip(statistics, sources, strict=True)]
        mean, var = (torch.cat([_per_stream(t, streams) for t in values], 1) for values in zip(*known, strict=True))
        squared = (mean - self._mean).square_().add_((var.clamp(min=0).sqrt_() - self._deviation).square_())
        distances: Tensor = (squared @ self._weights).sqrt_()
        for layer, own in enumerate(statistics):
            if own is None:
                distances[:, layer] = torch.nan
        return distances


def _per_stream(values: Tensor, streams: int) -> Tensor:
    """[S, C] from that or from [C]."""
    values = values.float()
    return values if values.dim() == 2 else values.expand(streams, -1)


def _of_examples(distances: Tensor, segments: Segments | None) -> Tensor:
    """[N, L] from [S, L]."""
    if segments is None:
        raise AdaptationError("the drift of several streams is measured in their block: with predbn.streams(model, …)")
    return segments.repeat(distances)
