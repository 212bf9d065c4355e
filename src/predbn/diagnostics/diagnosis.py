"""What was found: how far each layer has moved, with the training statistics and with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .distance import noise, unit, wasserstein
from .distribution import Distribution
from .divergence import paper_divergence
from .profile import EMBEDDINGS, LOGITS, Profile

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Diagnosis", "Shift"]

Kind = Literal["batch norm", "embeddings", "logits"]
Data = Literal["reference", "shifted"]


@dataclass(frozen=True)
class Shift:
    """How far one layer's distribution is from the one it has on the reference data with the training statistics.

    distance    W₁ of a channel in its standard deviations on the reference, mean over the channels
    apart       the same from the reference data *under the same strategy*: what the shift still does, without what
                the strategy does to any data
    noise       what either would be on average if the data were more of the reference
    outside     share of the values outside the range of the reference, mean over the channels
    divergence  KL(this ‖ reference) of the Gaussian fits, in nats: see `predbn.diagnostics.divergence`
    """

    layer: str
    kind: Kind
    depth: int
    channels: int
    data: Data
    strategy: str
    distance: float
    apart: float
    noise: float
    outside: float
    divergence: float


@dataclass(frozen=True)
class Diagnosis:
    """A model's inside on reference data and on shifted data.

    `reference` and `before` are the two with the statistics stored in training, `settled` and `after` the two with
    `strategy`; these are None for a model without batch norm. `batch_size` is that of the largest batch.
    """

    reference: Profile
    settled: Profile | None
    before: Profile
    after: Profile | None
    strategy: str
    batch_size: int

    @cached_property
    def shifts(self) -> list[Shift]:
        """The layers in the order of the calls, then embeddings and logits; for each a row per data and strategy."""
        return list(self._shifts())

    def of(self, strategy: str, *, data: Data = "shifted", kind: Kind | None = None) -> list[Shift]:
        """The rows of one strategy on one data, of all kinds of layers or of one."""
        return [r for r in self.shifts if (r.data, r.strategy) == (data, strategy) and kind in (None, r.kind)]

    def channels(self, layer: str) -> list[int]:
        """The channels of a layer, the one that moved most with the training statistics first."""
        known, found = self.reference.distributions[layer], self.before.distributions[layer]
        moved = wasserstein(known.histogram, found.histogram) / unit(known.gaussian)
        order: list[int] = moved.argsort(descending=True, stable=True).tolist()
        return order

    def sentences(self) -> list[str]:
        """What it means: has the data shifted, in which layers, does the strategy bring it back."""
        from .verdict import sentences

        return sentences(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per (layer, data, strategy), with the fields of `Shift`."""
        import pandas as pd

        frame: pd.DataFrame = pd.DataFrame([asdict(row) for row in self.shifts])
        return frame

    def to_dict(self) -> dict[str, Any]:
        """Sentences, rows and predictions as plain data, ready for JSON."""
        return {
            "sentences": self.sentences(),
            "strategy": self.strategy,
            "batch_size": self.batch_size,
            "layers": [asdict(row) for row in self.shifts],
            "predictions": [
                {"data": data, "strategy": strategy, "examples": one.count}
                | ({"confidence": seen.mean, "entropy": seen.entropy} if (seen := one.confidence) else {})
                for data, strategy, one in self.sides()
            ],
        }

    def sides(self) -> Iterator[tuple[Data, str, Profile]]:
        """(data, strategy, profile): the reference and the shifted data under each strategy."""
        yield "reference", "train", self.reference
        if self.settled is not None:
            yield "reference", self.strategy, self.settled
        yield "shifted", "train", self.before
        if self.after is not None:
            yield "shifted", self.strategy, self.after

    def _shifts(self) -> Iterator[Shift]:
        for depth, (layer, known) in enumerate(self.reference.distributions.items(), start=1):
            kind: Kind = "batch norm"
            if layer in (EMBEDDINGS, LOGITS):
                kind = "embeddings" if layer == EMBEDDINGS else "logits"
            scale = unit(known.gaussian)
            own: dict[str, Distribution] = {}
            for data, strategy, side in self.sides():
                found = side.distributions[layer]
                own.setdefault(strategy, found)
                yield Shift(
                    layer,
                    kind,
                    depth,
                    known.columns,
                    data,
                    strategy,
                    distance=float((wasserstein(known.histogram, found.histogram) / scale).mean()),
                    apart=float((wasserstein(own[strategy].histogram, found.histogram) / scale).mean()),
                    noise=float((noise(known.histogram, found.count) / scale).mean()),
                    outside=float(found.histogram.outside.mean()),
                    divergence=paper_divergence(known.gaussian, found.gaussian),
                )
