"""Rows with randomised features: the shift of the paper's Criteo experiment.

| split | what is replaced with probability p | replaced by |
|---|---|---|
| `tokens` | each category, independently | a random token, which falls into a random bucket of its feature |
| `columns` | each category column, for a whole block of rows | the same |
| `marginals` | each number and category, independently | the value of a random training row |

`columns` is what the code of the reference benchmark does (Ovadia et al. 2019 draw once per column and batch);
`tokens` is what its text describes. Both change the distribution of each feature, which batch norm can see.
`marginals` keeps the distribution of each feature and destroys only the dependence between features: the statistics
of a batch norm on the features do not change, so prediction-time BN has nothing to correct.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import torch
from torch import Tensor

from predbn.common import DataError
from predbn.shifts import randomise_features, randomise_tokens

from ..batch import Device, Order
from ..images import sha256_of
from ..shifted import CLEAN
from .columns import CATEGORIES, NUMBERS
from .rows import RowBatch, Rows

PERCENTAGES = (5, 10, 25, 50, 75, 95)
"""The severities: the probability of a replacement in percent."""

_MARGINAL_ROWS = 100_000


class Randomised:
    """A part of the data under every randomisation and percentage; "clean" with severity 0 is the part itself.

    `marginals` draws its values from `train` (from 100,000 of its rows, evenly spaced); without `train` that split does
    not exist. Every draw is determined by the seed and the index of the row. `block` is the number of rows, counted
    from the first of the part, that `columns` replaces together; if it is the batch size, this is the reference's
    randomisation.
    """

    def __init__(self, clean: Rows, *, train: Rows | None = None, seed: int = 0, block: int = 500) -> None:
        if block < 1:
            raise DataError(f"block is {block}, but it must be at least 1 row.")
        self.clean, self.train, self.seed, self.block = clean, train, seed, block
        self.name, self.classes = f"{clean.name}-randomised", clean.classes
        self.names = ["tokens", "columns", *(["marginals"] if train is not None else [])]
        self._marginals = None if train is None else _evenly_spaced(train).to(clean.device)

    def __len__(self) -> int:
        return len(self.clean)

    @property
    def labels(self) -> Tensor:
        """int64 [N]; randomisation does not change the labels."""
        return self.clean.labels

    @property
    def index(self) -> Tensor:
        """int64 [N], on the CPU."""
        return self.clean.index

    @property
    def sums(self) -> dict[str, str]:
        """SHA-256 of the clean rows, and of the rows that `marginals` draws from."""
        if self._marginals is None:
            return dict(self.clean.sums)
        return {**self.clean.sums, "marginals": sha256_of(self._marginals)}

    def seeded(self, seed: int) -> Randomised:
        """The same rows with another seed."""
        other = copy(self)
        other.seed = seed
        return other

    def to(self, device: Device) -> Randomised:
        """The same rows on a device, where they are also randomised."""
        other = copy(self)
        other.clean = self.clean.to(device)
        other._marginals = None if self._marginals is None else self._marginals.to(device)
        return other

    def batches(
        self, name: str, severity: int, size: int, *, order: Order | None = None, device: Device | None = None
    ) -> Iterator[RowBatch]:
        """Batches of at most `size` rows of one split, in an order of positions or from first to last."""
        clean = self.clean.batches(size, order=order, device=device)
        if name == CLEAN and severity == 0 and not isinstance(severity, bool):
            return clean
        if name not in self.names:
            raise DataError(f"{self.clean.name} has no split {name!r}: it has {CLEAN}, {', '.join(self.names)}.")
        if isinstance(severity, bool) or severity not in PERCENTAGES:
            raise DataError(f"severity is {severity!r}, but {name} has {', '.join(map(str, PERCENTAGES))} percent.")
        return (batch._replace(inputs=self._randomise(batch, name, severity / 100)) for batch in clean)

    def _randomise(self, batch: RowBatch, name: str, p: float) -> Tensor:
        widths = [len(NUMBERS), len(CATEGORIES)]
        numbers, tokens = batch.inputs.split(widths, 1)
        if name == "marginals" and self._marginals is not None:
            number_values, token_values = self._marginals.split(widths, 1)
            options: dict[str, Any] = {"seed": self.seed, "index": batch.index}
            numbers = randomise_features(numbers, p, marginals=number_values, name="numbers", **options)
            tokens = randomise_features(tokens, p, marginals=token_values, name="tokens", **options)
            return torch.cat((numbers, tokens), 1)
        together = (batch.index - self.clean.first) // self.block if name == "columns" else None
        tokens = randomise_tokens(tokens, p, seed=self.seed, index=batch.index, together=together)
        return torch.cat((numbers, tokens), 1)


def _evenly_spaced(train: Rows) -> Tensor:
    """The features of at most 100,000 training rows, evenly spaced."""
    count = min(len(train), _MARGINAL_ROWS)
    return train.table(torch.arange(count) * len(train) // count)[:, 1:]
