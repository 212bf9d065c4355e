"""The Criteo network: every category embedded, all concatenated with the numbers, a batch norm, three ReLU layers.

Raw columns go in (int32 [n, 39], as `predbn.data.criteo` yields them) and logits [n, 2] come out, whose softmax is the
sigmoid of the network's one output: methods, metrics and strategies take them as they take those of pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import ModelError
from predbn.data import CRITEO_CATEGORIES as _CATEGORIES
from predbn.data import CRITEO_NUMBERS as _NUMBERS
from predbn.data import MISSING_NUMBER

from .weights import load_into, read

__all__ = ["ClickDescription", "ClickModel", "CriteoNetwork", "CriteoSizes", "RowPreprocessing", "load_criteo"]

NUMBERS, CATEGORIES = len(_NUMBERS), len(_CATEGORIES)

# fmt: off
_BUCKETS = (
    1373, 2148, 4847, 9781, 396, 28, 3591, 2798, 14, 7403, 2511, 5598, 9501,
    46, 4753, 4056, 23, 3828, 5856, 12, 4226, 23, 61, 3098, 494, 5087,
)
_DIMENSIONS = (
    3, 9, 29, 11, 17, None, 14, 4, None, 12, 19, 24, 29,
    None, 13, 25, None, 8, 29, None, 22, None, None, 31, None, 29,
)
# fmt: on


@dataclass(frozen=True)
class CriteoSizes:
    """How many buckets the categories of each column share, how many dimensions they are embedded in (None: one for
    each bucket, which is 1 or 0), and the widths of the ReLU layers.

    Those that stand here are the reference benchmark's, found by its search (Ovadia et al. 2019).
    """

    buckets: tuple[int, ...] = _BUCKETS
    dimensions: tuple[int | None, ...] = _DIMENSIONS
    widths: tuple[int, ...] = (2572, 1454, 1596)

    def __post_init__(self) -> None:
        for name in ("buckets", "dimensions"):
            if len(getattr(self, name)) != CATEGORIES:
                found = len(getattr(self, name))
                raise ModelError(f"{name} has {found} numbers, but there are {CATEGORIES} columns of categories.")
        for size in (*self.buckets, *(d for d in self.dimensions if d is not None), *self.widths):
            if size < 1:
                raise ModelError(f"A bucket count, dimension or width is {size}, but each must be at least 1.")

    def limited(self, *, buckets: int | None = None, dimensions: int | None = None) -> CriteoSizes:
        """The same with at most so many buckets or dimensions a column: for little data."""
        return CriteoSizes(
            tuple(min(size, buckets or size) for size in self.buckets),
            tuple(None if size is None else min(size, dimensions or size) for size in self.dimensions),
            self.widths,
        )

    @property
    def features(self) -> int:
        """How many values the batch norm sees."""
        pairs = zip(self.dimensions, self.buckets, strict=True)
        return NUMBERS + sum(buckets if dimension is None else dimension for dimension, buckets in pairs)

    @classmethod
    def from_plain(cls, plain: dict[str, Sequence[Any]]) -> CriteoSizes:
        """What `asdict` and JSON made of it, as it was."""
        return cls(**{name: tuple(values) for name, values in plain.items()})


@dataclass(frozen=True)
class RowPreprocessing:
    """Raw columns to what the network takes.

    Numbers become sign(x) ln(1 + |x|), missing ones counting as −1. The token t of a category, a 32-bit hash, falls
    into the bucket ⌊t K / 2³²⌋ of the K of its column; a missing category has a token like any other.
    """

    buckets: tuple[int, ...]

    @property
    def values(self) -> int:
        """How many numbers a row is."""
        return NUMBERS + CATEGORIES

    def describe(self) -> dict[str, Any]:
        """The same as plain data, for cards."""
        return {"numbers": "sign(x) ln(1 + |x|), missing as -1", "buckets": list(self.buckets)}


@dataclass(frozen=True)
class ClickDescription:
    """What a model is: the reference it came from, its classes, its preprocessing, and its card where it has one."""

    reference: str
    preprocessing: RowPreprocessing
    card: dict[str, Any] = field(default_factory=dict)
    classes: int = 2


class PrepareRows(nn.Module):
    """The arithmetic of a RowPreprocessing on int32 [n, 39]: numbers float32 [n, 13] and buckets int64 [n, 26]."""

    counts: Tensor

    def __init__(self, preprocessing: RowPreprocessing) -> None:
        super().__init__()
        self.register_buffer("counts", torch.tensor(preprocessing.buckets), persistent=False)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if rows.dtype != torch.int32 or rows.ndim != 2 or rows.shape[1] != NUMBERS + CATEGORIES:
            raise ModelError(
                f"The rows are {str(rows.dtype).removeprefix('torch.')} {list(rows.shape)}, but the model takes int32 "
                f"[n, {NUMBERS + CATEGORIES}]: 13 numbers and 26 tokens, as predbn.data.criteo yields them."
            )
        raw, tokens = rows[:, :NUMBERS], rows[:, NUMBERS:]
        values = torch.where(raw == MISSING_NUMBER, -1, raw).to(torch.float32)
        buckets = (tokens.long() & 0xFFFFFFFF) * self.counts >> 32
        return values.sign() * values.abs().log1p(), buckets


class CriteoNetwork(nn.Module):
    """Embeddings, concatenation, batch norm, ReLU layers, one logit: with the initialisation of Keras's layers."""

    hot_column: Tensor
    hot_bucket: Tensor

    def __init__(self, sizes: CriteoSizes | None = None, *, eps: float = 1e-3, momentum: float = 0.01) -> None:
        super().__init__()
        self.sizes = sizes = sizes or CriteoSizes()
        pairs = list(enumerate(zip(sizes.buckets, sizes.dimensions, strict=True)))
        self.embeddings = nn.ModuleDict(
            {f"C{column + 1}": _embedding(buckets, size) for column, (buckets, size) in pairs if size is not None}
        )
        self.columns = [column for column, (_, size) in pairs if size is not None]
        hot = [(column, bucket) for column, (buckets, size) in pairs if size is None for bucket in range(buckets)]
        for name, values in (
            ("hot_column", [column for column, _ in hot]),
            ("hot_bucket", [bucket for _, bucket in hot]),
        ):
            self.register_buffer(name, torch.tensor(values, dtype=torch.int64), persistent=False)
        self.norm = nn.BatchNorm1d(sizes.features, eps=eps, momentum=momentum)
        widths = (sizes.features, *sizes.widths)
        self.hidden = nn.ModuleList([_linear(*pair) for pair in pairwise(widths)])
        self.last = _linear(widths[-1], 1)

    def forward(self, numbers: Tensor, buckets: Tensor) -> Tensor:
        dtype = self.last.weight.dtype
        hot = buckets.index_select(1, self.hot_column) == self.hot_bucket
        embedded = [
            table(buckets[:, column]) for column, table in zip(self.columns, self.embeddings.values(), strict=True)
        ]
        x = self.norm(torch.cat([numbers.to(dtype), *embedded, hot.to(dtype)], 1))
        for linear in self.hidden:
            x = torch.relu(linear(x))
        logit: Tensor = self.last(x)
        return torch.cat((torch.zeros_like(logit), logit), 1)


def _embedding(buckets: int, size: int) -> nn.Embedding:
    embedding = nn.Embedding(buckets, size)
    nn.init.trunc_normal_(embedding.weight, std=size**-0.5)
    return embedding


def _linear(inputs: int, outputs: int) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class ClickModel(nn.Module):
    """Takes rows as they come from a data set, int32 [n, 39], and gives logits [n, 2] of no click and click."""

    def __init__(self, network: CriteoNetwork, description: ClickDescription | None = None) -> None:
        super().__init__()
        self.description = description or ClickDescription("criteo", RowPreprocessing(network.sizes.buckets))
        self.prepare = PrepareRows(self.description.preprocessing)
        self.network = network

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.network(*self.prepare(rows))
        return logits

    def extra_repr(self) -> str:
        return self.description.reference


def load_criteo(path: str | Path, *, device: torch.device | str | None = None) -> ClickModel:
    """The model whose weights `predbn train criteo` wrote there, in evaluation mode; its sizes are in its card."""
    state, card = read(path)
    if "sizes" not in card:
        raise ModelError(f"{path} has no card with the sizes of a Criteo network: name a file of predbn train criteo.")
    sizes = CriteoSizes.from_plain(card["sizes"])
    network = CriteoNetwork(sizes, eps=float(card["eps"]))
    load_into(network, state, str(path))
    model = ClickModel(network, ClickDescription(f"criteo:{path}", RowPreprocessing(sizes.buckets), card)).eval()
    return model if device is None else model.to(device)


def plain_sizes(sizes: CriteoSizes) -> dict[str, list[Any]]:
    """The sizes as plain data, for cards."""
    return {name: list(values) for name, values in asdict(sizes).items()}
