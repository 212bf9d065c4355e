"""How far each stream of a pass was from the source, in every layer.

`describe` tells it for the last batch of a single stream. A server asks after every pass and for many streams, so here
all layers and streams are measured together, in a few operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .adapted_layer import LayerAdaptation, adapted_layers, source_statistics
from .statistics import Statistics


class Drift(NamedTuple):
    """Distances of S streams in L layers, in source standard deviations, [S, L]; NaN where they are not known.

    seen   from the source statistics to those that the stream has shown in the last pass
    used   from the source statistics to those that its rows were normalised with

    A strategy that believes what it sees uses all of it, one that takes it for chance uses little.
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
                adaptation.shared.watches_drift = True
        if sources:
            self._mean = torch.cat([source.mean for source in sources])
            self._deviation = torch.cat([source.var for source in sources]).clamp(min=0).sqrt()
            # Σ over the channels of a layer of (…)²/(σ_s² + eps), divided by their number, as a product with a matrix.
            self._weights = torch.block_diag(*(scale[:, None] / len(scale) for scale in scales))

    def clear(self) -> None:
        """Before a pass: a layer that it does not call is not known afterwards, whatever an earlier pass has shown."""
        for adaptation in self._adaptations:
            adaptation.last_pass = None, None

    @torch.no_grad()
    def measure(self, first_examples: Sequence[int], examples: int) -> Drift:
        """The drift of streams in a pass of so many examples; the first example of each stream tells what it used."""
        streams, last = len(first_examples), [adaptation.last_pass for adaptation in self._adaptations]
        first = torch.tensor(first_examples)
        seen = self._distances([seen for seen, _ in last], streams)
        if all(adaptation.shared.strategy.uses_batch_alone for adaptation in self._adaptations):
            return Drift(seen, seen)
        of_streams = [None if used is None else _of_rows(used, first, examples) for _, used in last]
        return Drift(seen, self._distances(of_streams, streams))

    def _distances(self, statistics: Sequence[Statistics | None], streams: int) -> Tensor:
        """As in `statistics.distance`, for all layers at once, [S, L]."""
        is_known = torch.tensor([own is not None for own in statistics], dtype=torch.bool)
        if not is_known.any():
            return torch.full((streams, len(self.layers)), torch.nan)
        sources = self._mean.split(self._sizes)
        known = [own or Statistics(source, source) for own, source in zip(statistics, sources, strict=True)]
        mean, var = (torch.cat([_per_stream(t, streams) for t in values], 1) for values in zip(*known, strict=True))
        squared = (mean - self._mean).square_().add_((var.clamp(min=0).sqrt_() - self._deviation).square_())
        distances: Tensor = (squared @ self._weights).sqrt_().cpu()
        return distances.masked_fill(~is_known, torch.nan)


def _per_stream(values: Tensor, streams: int) -> Tensor:
    """[S, C] from that or from [C]."""
    values = values.float()
    return values if values.dim() == 2 else values.expand(streams, -1)


def _of_rows(used: Statistics, first: Tensor, examples: int) -> Statistics:
    """Of the statistics of all rows, those of the first row of each stream; those of streams as they are."""
    if used.mean.dim() == 1 or len(used.mean) == len(first):
        return used
    rows = first.to(used.mean.device) * (len(used.mean) // examples)
    return Statistics(*(t.index_select(0, rows) for t in used))
