"""The result of a diagnosis: how far each layer has moved, with the training statistics and with a strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .distance import distance_unit, expected_wasserstein, paper_divergence, wasserstein
from .distribution import Distribution
from .profile import EMBEDDINGS, LOGITS, Profile

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["batch norm", "embeddings", "logits"]
Data = Literal["reference", "shifted"]

TIMES_NOISE = 3.0
"""A layer has shifted if its distance is more than three times what chance would give: the distance of a single channel
scatters by about half of its mean, and the channels of a layer may move together; even then chance reaches three times
its mean about once in a thousand."""
MIN_DISTANCE = 0.1
"""And more than a tenth of a standard deviation, because with enough data everything is significant: a channel that
moved by 0.1 standard deviations has at most 4 % of its values on the other side of any threshold, which hardly matters
to a network."""


@dataclass(frozen=True)
class Shift:
    """How far a layer's distribution is from the one on the reference data with the training statistics.

    distance    W₁ of a channel in its standard deviations on the reference, mean over the channels
    apart       the same from the reference data *under the same strategy*: what the shift still does, without what
                the strategy does to any data
    noise       the mean of either if the data were further reference data
    outside     share of the values outside the range of the reference, mean over the channels
    divergence  KL(this ‖ reference) of the Gaussian fits, in nats: see `paper_divergence`
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


def shift_threshold(row: Shift) -> float:
    """The distance above which a layer counts as shifted."""
    return max(TIMES_NOISE * row.noise, MIN_DISTANCE)


def has_shifted(row: Shift) -> bool:
    """Whether a layer has moved further than chance explains, and far enough to matter."""
    return row.distance > shift_threshold(row)


def recovered_share(before: Sequence[Shift], after: Sequence[Shift]) -> float:
    """How much of a shift a strategy undoes: 1 − (d_after − noise) / (d_before − noise), of means over layers.

    d is the distance between shifted and reference data under the same strategy (`Shift.apart`). The share is 1 if only
    chance is left, 0 if nothing is gained, and negative if the two moved further apart.
    """
    gap_before, gap_after = (mean_or_zero([row.apart - row.noise for row in rows]) for rows in (before, after))
    return min(1.0, 1 - gap_after / gap_before) if gap_before > 0 else 0.0


def mean_or_zero(values: Sequence[float]) -> float:
    """The mean; 0 if there are no values."""
    return sum(values) / len(values) if values else 0.0


@dataclass(frozen=True)
class Diagnosis:
    """Profiles of a model on reference data and on shifted data.

    `reference` and `before` are with the statistics stored in training, `reference_after` and `after` with `strategy`;
    the latter two are None for a model without batch norm. `batch_size` is the size of the largest batch.
    """

    reference: Profile
    reference_after: Profile | None
    before: Profile
    after: Profile | None
    strategy: str
    batch_size: int

    @cached_property
    def shifts(self) -> list[Shift]:
        """The layers in the order of the calls, then embeddings and logits; one row for each data and strategy."""
        return list(self._compute_shifts())

    def of(self, strategy: str, *, data: Data = "shifted", kind: Kind | None = None) -> list[Shift]:
        """The rows of one strategy on one of the two data sets, by default for all kinds of layers."""
        return [r for r in self.shifts if (r.data, r.strategy) == (data, strategy) and kind in (None, r.kind)]

    def channels(self, layer: str) -> list[int]:
        """The channels of a layer, starting with the one that moved most with the training statistics."""
        reference, shifted = self.reference.distributions[layer], self.before.distributions[layer]
        distance = wasserstein(reference.histogram, shifted.histogram) / distance_unit(reference.gaussian)
        order: list[int] = distance.argsort(descending=True, stable=True).tolist()
        return order

    def sentences(self) -> list[str]:
        """The result in words: whether the data has shifted, in which layers, and whether the strategy undoes it."""
        from .sentences import sentences

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
                {"data": data, "strategy": strategy, "examples": profile.count}
                | ({"confidence": c.mean, "entropy": c.entropy} if (c := profile.confidence) else {})
                for data, strategy, profile in self.sides()
            ],
        }

    def sides(self) -> Iterator[tuple[Data, str, Profile]]:
        """(data, strategy, profile): the reference and the shifted data under each strategy."""
        yield "reference", "train", self.reference
        if self.reference_after is not None:
            yield "reference", self.strategy, self.reference_after
        yield "shifted", "train", self.before
        if self.after is not None:
            yield "shifted", self.strategy, self.after

    def _compute_shifts(self) -> Iterator[Shift]:
        for depth, (layer, reference) in enumerate(self.reference.distributions.items(), start=1):
            kind: Kind = "batch norm"
            if layer in (EMBEDDINGS, LOGITS):
                kind = "embeddings" if layer == EMBEDDINGS else "logits"
            unit = distance_unit(reference.gaussian)
            same_strategy: dict[str, Distribution] = {}
            for data, strategy, profile in self.sides():
                distribution = profile.distributions[layer]
                # `sides` gives the reference data first.
                reference_under_strategy = same_strategy.setdefault(strategy, distribution)
                histogram = distribution.histogram
                yield Shift(
                    layer,
                    kind,
                    depth,
                    reference.columns,
                    data,
                    strategy,
                    distance=float((wasserstein(reference.histogram, histogram) / unit).mean()),
                    apart=float((wasserstein(reference_under_strategy.histogram, histogram) / unit).mean()),
                    noise=float((expected_wasserstein(reference.histogram, distribution.count) / unit).mean()),
                    outside=float(histogram.outside.mean()),
                    divergence=paper_divergence(reference.gaussian, distribution.gaussian),
                )
