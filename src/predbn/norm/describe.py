"""A table of the batch norm layers of a model and what they normalise with."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from torch import nn

from .layer import attached, source_class, source_statistics
from .layers import named_layers
from .statistics import distance

_LEGEND = """\
distance: of the last batch's statistics from the stored ones, in standard deviations
believed: the part of it that the strategy follows, from 0 (the stored statistics) to 1 (those of the batch)"""


@dataclass(frozen=True)
class LayerDescription:
    """One batch norm layer.

    `distance` is how far the last batch's statistics were from the source statistics, in source standard deviations
    (see `statistics.distance`), and `believed` which part of it those have that it was normalised with: 0 with the
    source statistics, 1 with those of the batch. Both are None if there was no batch yet. `bad_rows` counts the
    examples that were left out because they were not finite.
    """

    name: str
    kind: str
    channels: int
    strategy: str
    eps: float
    distance: float | None
    believed: float | None = None
    bad_rows: int = 0


class Description(list[LayerDescription]):
    """The layers of a model in order. It prints as a table, with a column of bad rows if there were any.

    `note` says what `fold` did if the model is folded, and which pass predicted the last batch of an `AutoPredictor`.
    """

    note: object = None

    def __str__(self) -> str:
        table = self._table() if self or self.note is None else ""
        legend = _LEGEND if any(layer.distance is not None for layer in self) else ""
        return "\n".join(part for part in (table, legend, "" if self.note is None else str(self.note)) if part)

    def _table(self) -> str:
        header = ("layer", "kind", "channels", "strategy", "eps", "distance", "believed", "bad rows")
        rows = [header, *(tuple(_format(value) for value in astuple(layer)) for layer in self)]
        if not any(layer.bad_rows for layer in self):
            rows = [row[:-1] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        align = [str.ljust, str.ljust, str.rjust, str.ljust, str.rjust, str.rjust, str.rjust, str.rjust]
        lines = ["  ".join(pad(v, w) for pad, v, w in zip(align, row, widths, strict=False)) for row in rows]
        return "\n".join(line.rstrip() for line in [lines[0], "  ".join("-" * w for w in widths), *lines[1:]])

    __repr__ = __str__


def describe(model: nn.Module) -> Description:
    """Every batch norm layer of a model: name, kind, channels, strategy, eps, how far the last batch's statistics were
    from the source statistics, and how much of that was believed. The model may be adapted or not."""
    description = Description(_describe(name, layer) for name, layer in named_layers(model))
    description.note = getattr(model, "predbn_fold", None) or getattr(model, "predbn_passes", None)
    return description


def _describe(name: str, layer: nn.Module) -> LayerDescription:
    adaptation, source = attached(layer), source_statistics(layer)
    strategy, eps, shift, believed, bad_rows = "train", float(layer.eps), None, None, 0  # type: ignore[arg-type]
    if adaptation is not None:
        strategy = str(adaptation.shared.strategy)
        if adaptation.shared.strategy.calibration == "needed" and adaptation.calibration is None:
            strategy += ", not calibrated"
        eps, bad_rows = adaptation.eps(layer), adaptation.bad_rows
        if adaptation.seen is not None and adaptation.seen.mean.dim() == 1 and source is not None:
            shift = distance(adaptation.seen, source, eps)
            if adaptation.used is not None and shift > 0:
                believed = distance(adaptation.used, source, eps) / shift
    kind = source_class(layer).__name__
    return LayerDescription(name, kind, _channels(layer), strategy, eps, shift, believed, bad_rows)


def _channels(layer: nn.Module) -> int:
    if isinstance(getattr(layer, "num_features", None), int):
        return layer.num_features  # type: ignore[return-value]
    return layer.running_mean.numel()  # type: ignore[operator]


def _format(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
