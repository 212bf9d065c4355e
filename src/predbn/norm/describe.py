"""A table of every batch norm layer and what it normalises with."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from torch import nn

from .kinds import named_layers
from .layer import slot_of, source_class, source_statistics
from .statistics import distance


@dataclass(frozen=True)
class LayerDescription:
    """One batch norm layer. `distance` is that of the last batch's statistics from the source ones, in
    source standard deviations (see `statistics.distance`); None before a batch was looked at."""

    name: str
    kind: str
    channels: int
    strategy: str
    eps: float
    distance: float | None


class Description(list[LayerDescription]):
    """The layers of a model in order; printed, a table."""

    def __str__(self) -> str:
        header = ("layer", "kind", "channels", "strategy", "eps", "distance")
        rows = [header, *(tuple(_shown(v) for v in astuple(layer)) for layer in self)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
        right = {2, 4, 5}
        lines = [
            "  ".join(
                v.rjust(w) if i in right else v.ljust(w) for i, (v, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        return "\n".join(line.rstrip() for line in [lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    __repr__ = __str__


def describe(model: nn.Module) -> Description:
    """Every batch norm layer of a model: name, kind, channels, strategy, eps, and how far the last
    batch's statistics were from the source ones. Works on any model, adapted or not."""
    return Description(_describe(name, layer) for name, layer in named_layers(model))


def _describe(name: str, layer: nn.Module) -> LayerDescription:
    slot = slot_of(layer)
    source = source_statistics(layer)
    eps = float(layer.eps) if slot is None else slot.eps(layer)  # type: ignore[arg-type]
    apart = None
    if slot is not None and slot.seen is not None and source is not None:
        apart = distance(slot.seen.statistics, source, eps)
    strategy = "train" if slot is None else str(slot.adaptation.strategy)
    return LayerDescription(name, source_class(layer).__name__, _channels(layer), strategy, eps, apart)


def _channels(layer: nn.Module) -> int:
    if isinstance(getattr(layer, "num_features", None), int):
        return layer.num_features  # type: ignore[return-value]
    return layer.running_mean.numel()  # type: ignore[operator]


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
