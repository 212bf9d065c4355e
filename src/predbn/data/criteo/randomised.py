"""Rows whose features are randomised more and more: the shift of the paper's Criteo experiment.

| split | what is replaced, with probability p | by |
|---|---|---|
| `tokens` | every category, each by itself | a random token, which falls into a random bucket of its feature |
| `columns` | every category column, for a block of rows at once | the same |
| `marginals` | every number and category, each by itself | the value of a random training row |

`columns` is what the reference benchmark's code does (Ovadia et al. 2019 draw once for a column of a whole batch);
`tokens` is what its text says. Both change how each feature is distributed, which is what batch norm can see.
`marginals` keeps every feature's distribution and breaks only what ties features together: the statistics of a batch
norm on the features stay as they were, and prediction-time BN has nothing to correct.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from copy import copy

import torch
from torch import Tensor

from predbn.common import DataError
from predbn.shifts import randomise_features, randomise_tokens

from ..batch import Device, Order
from ..shifted import CLEAN
from .columns import NUMBERS
from .rows import RowBatch, Rows

__all__ = ["PERCENTAGES", "Randomised"]

PERCENTAGES = (5, 10, 25, 50, 75, 95)
"""The severities: with which probability, in percent."""

_MARGINAL_ROWS = 100_000


class Randomised:
    """A part of the data under every randomisation and percentage; "clean" with severity 0 is the part itself.

    `train` gives `marginals` its values (a hundred thousand rows of it, evenly spread); without it there is no such
    split. Each draw follows from the seed and the row's index. `block` is how many rows `columns` decides for at once,
    counted from the first of the part: the batch size that is predicted with makes it the reference's.
    """

    severities = PERCENTAGES

    def __init__(self, clean: Rows, *, train: Rows | None = None, seed: int = 0, block: int = 500) -> None:
        if block < 1:
            raise DataError(f"block is {block}, but a draw is for at least 1 row.")
        self.clean, self.train, self.seed, self.block = clean, train, seed, block
        self.name, self.classes = f"{clean.name}-randomised", clean.classes
        self.names = ["tokens", "columns", *(["marginals"] if train is not None else [])]
        self._marginals = None if train is None else _spread(train).to(clean.device)

    def __len__(self) -> int:
        """How many rows a split has."""
        return len(self.clean)

    def __repr__(self) -> str:
        """The clean rows and the seed."""
        return f"Randomised({self.clean!r}, seed={self.seed}, block={self.block})"

    @property
    def labels(self) -> Tensor:
        """int64 [N]: randomisation leaves the labels alone."""
        return self.clean.labels

    @property
    def index(self) -> Tensor:
        """int64 [N], on the CPU."""
        return self.clean.index

    @property
    def sums(self) -> dict[str, str]:
        """SHA-256 of the clean rows, and of the values that `marginals` draws from."""
        if self._marginals is None:
            return dict(self.clean.sums)
        drawn_from = hashlib.sha256(self._marginals.cpu().contiguous().numpy().data).hexdigest()
        return {**self.clean.sums, "marginals": drawn_from}

    def seeded(self, seed: int) -> Randomised:
        """The same rows under other draws."""
        other = copy(self)
        other.seed = seed
        return other

    def to(self, device: Device) -> Randomised:
        """The same rows held on a device, and randomised there."""
        other = copy(self)
        other.clean = self.clean.to(device)
        other._marginals = None if self._marginals is None else self._marginals.to(device)
        return other

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[RowBatch]:
        """Batches of at most `size` rows of one split, in the given order of positions or from first to last."""
        clean = self.clean.batches(size, order=order, device=device)
        if name == CLEAN and severity == 0 and not isinstance(severity, bool):
            return clean
        if name not in self.names:
            raise DataError(f"{self.clean.name} has no split {name!r}: it has {CLEAN}, {', '.join(self.names)}.")
        if isinstance(severity, bool) or severity not in PERCENTAGES:
            raise DataError(f"severity is {severity!r}, but {name} has {', '.join(map(str, PERCENTAGES))} percent.")
        return (batch._replace(inputs=self._randomise(batch, name, severity / 100)) for batch in clean)

    def _randomise(self, batch: RowBatch, name: str, p: float) -> Tensor:
        numbers, tokens = batch.inputs.split([len(NUMBERS), batch.inputs.shape[1] - len(NUMBERS)], 1)
        if self._marginals is not None and name == "marginals":
            sources = self._marginals.split([len(NUMBERS), tokens.shape[1]], 1)
            done = [
                randomise_features(rows, p, marginals=rows_of, seed=self.seed, index=batch.index, name=kind)
                for rows, rows_of, kind in zip((numbers, tokens), sources, ("numbers", "tokens"), strict=True)
            ]
            return torch.cat(done, 1)
        together = None
        if name == "columns":
            together = (batch.index - self.clean.first) // self.block
        tokens = randomise_tokens(tokens, p, seed=self.seed, index=batch.index, together=together)
        return torch.cat((numbers, tokens), 1)


def _spread(train: Rows) -> Tensor:
    """At most a hundred thousand rows, evenly spread over the training rows; their features."""
    count = min(len(train), _MARGINAL_ROWS)
    return train.table(torch.arange(count) * len(train) // count)[:, 1:]
