"""How far each stream of a pass was from the source, in every layer.

`describe` tells it for the last batch of a single stream. A server asks after every pass and for many streams, so here
all layers and streams are measured together, in a few operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .adapted_layer import adapted_layers, source_statistics
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
        found = [
            (name, adaptation, Statistics(*(t.double() for t in source)), adaptation.eps(layer))
            for name, layer, adaptation in adapted_layers(model)
            if (source := source_statistics(layer)) is not None
        ]
        self.layers = [name for name, *_ in found]
        self._adaptations = [adaptation for _, adaptation, *_ in found]
        for adaptation in self._adaptations:
            adaptation.shared.watches_drift = True
        self._sizes = [len(source.mean) for *_, source, _ in found]
        if found:
            device = found[0][2].mean.device
            self._source = Statistics(*(torch.cat(values) for values in zip(*(f[2] for f in found), strict=True)))
            self._scale = torch.cat([1 / (source.var + eps) for *_, source, eps in found])
            self._layer_of_channel = torch.arange(len(found), device=device).repeat_interleave(
                torch.tensor(self._sizes, device=device)
            )

    @torch.no_grad()
    def measure(self, first_examples: Sequence[int], examples: int) -> Drift:
        """The drift of streams in a pass of so many examples; the first example of each stream tells what it used."""
        unknown = torch.full((len(first_examples), len(self.layers)), torch.nan)
        if not self.layers:
            return Drift(unknown, unknown)
        first = torch.tensor(first_examples)
        seen, used = zip(*(adaptation.last_pass for adaptation in self._adaptations), strict=True)
        of_streams = [None if s is None else _of_rows(s, first, examples) for s in used]
        return Drift(self._distances(seen, len(first)), self._distances(of_streams, len(first)))

    def _distances(self, statistics: Sequence[Statistics | None], streams: int) -> Tensor:
        """As in `statistics.distance`, for all layers at once."""
        parts = []
        for own, size in zip(statistics, self._sizes, strict=True):
            known = torch.full((2, 1, size), torch.nan) if own is None else torch.stack(tuple(own))
            parts.append(known.reshape(2, -1, size).expand(2, streams, size).to(self._scale))
        mean, var = torch.cat(parts, 2)
        spread = var.clamp(min=0).sqrt() - self._source.var.clamp(min=0).sqrt()
        squared = ((mean - self._source.mean).square() + spread.square()) * self._scale
        sums = squared.new_zeros(streams, len(self.layers)).index_add(1, self._layer_of_channel, squared)
        distances: Tensor = (sums / torch.tensor(self._sizes, device=sums.device)).sqrt()
        return distances.cpu()


def _of_rows(used: Statistics, first: Tensor, examples: int) -> Statistics:
    """Of the statistics of all rows, those of the first row of each stream."""
    if used.mean.dim() == 1:
        return used
    rows = first.to(used.mean.device) * (len(used.mean) // examples)
    return Statistics(*(t.index_select(0, rows) for t in used))
