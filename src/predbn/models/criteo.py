"""The Criteo network: embedded categories concatenated with the numbers, then a batch norm and three ReLU layers.

It takes raw columns (int32 [n, 39], as `predbn.data.criteo` yields them) and gives logits [n, 2]. Their softmax is the
sigmoid of the network's single output, so that methods, metrics and strategies work as they do for images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from predbn.common import ModelError
from predbn.data import CRITEO_CATEGORIES, CRITEO_NUMBERS, MISSING_NUMBER

from .classifier import ModelInfo
from .weights import load_weights, read_weights

NUMBERS, CATEGORIES = len(CRITEO_NUMBERS), len(CRITEO_CATEGORIES)

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
    """The sizes of a Criteo network.

    `buckets`: how many buckets the categories of each column are hashed into. `dimensions`: the size of each column's
    embedding, or None for a one-hot encoding of its buckets. `widths`: the widths of the ReLU layers. The defaults
    are those of the reference benchmark, from a search (Ovadia et al. 2019).
    """

    buckets: tuple[int, ...] = _BUCKETS
    dimensions: tuple[int | None, ...] = _DIMENSIONS
    widths: tuple[int, ...] = (2572, 1454, 1596)

    def __post_init__(self) -> None:
        for name in ("buckets", "dimensions"):
            count = len(getattr(self, name))
            if count != CATEGORIES:
                raise ModelError(f"Expected {name} to have {CATEGORIES} numbers, one per category, but got {count}.")
        for size in (*self.buckets, *(d for d in self.dimensions if d is not None), *self.widths):
            if size < 1:
                raise ModelError(f"Expected bucket counts, dimensions and widths to be at least 1, but got {size}.")

    def limited(self, *, buckets: int | None = None, dimensions: int | None = None) -> CriteoSizes:
        """The sizes with at most `buckets` and `dimensions` per column, for small data."""
        return CriteoSizes(
            tuple(min(size, buckets or size) for size in self.buckets),
            tuple(None if size is None else min(size, dimensions or size) for size in self.dimensions),
            self.widths,
        )

    @property
    def features(self) -> int:
        """How many features the batch norm has."""
        pairs = zip(self.dimensions, self.buckets, strict=True)
        return NUMBERS + sum(buckets if dimension is None else dimension for dimension, buckets in pairs)

    def to_dict(self) -> dict[str, list[Any]]:
        return {name: list(values) for name, values in asdict(self).items()}

    @classmethod
    def from_dict(cls, plain: dict[str, Sequence[Any]]) -> CriteoSizes:
        return cls(**{name: tuple(values) for name, values in plain.items()})


@dataclass(frozen=True)
class RowPreprocessing:
    """From raw columns to network inputs.

    A number x becomes sign(x) ln(1 + |x|); a missing one counts as −1. The token t of a category, a 32-bit hash, falls
    into bucket ⌊t K / 2³²⌋ of the K buckets of its column; a missing category has a token like any other.
    """

    buckets: tuple[int, ...]

    @property
    def values(self) -> int:
        """How many numbers one row has."""
        return NUMBERS + CATEGORIES

    def describe(self) -> dict[str, Any]:
        return {"numbers": "sign(x) ln(1 + |x|), missing as -1", "buckets": list(self.buckets)}


class PrepareRows(nn.Module):
    """The arithmetic of a RowPreprocessing: int32 [n, 39] to numbers float32 [n, 13] and buckets int64 [n, 26]."""

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
    """Embeddings, concatenation, batch norm, ReLU layers, one logit, with the initialisation of Keras's layers."""

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
        hot_column, hot_bucket = torch.tensor(hot, dtype=torch.int64).view(-1, 2).T.contiguous()
        self.register_buffer("hot_column", hot_column, persistent=False)
        self.register_buffer("hot_bucket", hot_bucket, persistent=False)
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
    """Takes rows as a data set yields them, int32 [n, 39], and gives logits [n, 2] of "no click" and "click"."""

    def __init__(self, network: CriteoNetwork, info: ModelInfo[RowPreprocessing] | None = None) -> None:
        super().__init__()
        self.info = info or ModelInfo("criteo", 2, RowPreprocessing(network.sizes.buckets))
        self.prepare = PrepareRows(self.info.preprocessing)
        self.network = network

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.network(*self.prepare(rows))
        return logits

    def extra_repr(self) -> str:
        return self.info.reference


def load_criteo(path: str | Path, *, device: torch.device | str | None = None) -> ClickModel:
    """The model from weights that `predbn train criteo` wrote, in evaluation mode; its sizes are in the card."""
    state, card = read_weights(path)
    if "sizes" not in card:
        raise ModelError(
            f"{path} has no card with the sizes of a Criteo network: name a file that predbn train criteo wrote."
        )
    try:
        sizes, eps = CriteoSizes.from_dict(card["sizes"]), float(card["eps"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{path} has a card that is not that of a Criteo network ({error!r}).") from None
    network = CriteoNetwork(sizes, eps=eps)
    load_weights(network, state, str(path))
    model = ClickModel(network, ModelInfo(f"criteo:{path}", 2, RowPreprocessing(sizes.buckets), card)).eval()
    return model if device is None else model.to(device)
