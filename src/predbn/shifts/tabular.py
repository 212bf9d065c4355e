"""A shift for tables: features that are no longer what they were.

With probability p a value is replaced by one drawn from its feature's marginal. Each feature by itself still
looks as before; what breaks is what ties features and label together. p = 0 leaves the table alone, p = 1
leaves nothing to learn from.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.shifts.corrupt import Index, check_index
from predbn.shifts.errors import ShiftError
from predbn.shifts.random import Draws

__all__ = ["randomise_features"]

Table = TypeVar("Table", npt.NDArray[Any], Tensor)


def randomise_features(
    rows: Table, p: float, *, marginals: Table, seed: int, index: Index, name: str = "features"
) -> Table:
    """Replace x[i, f] by marginals[r, f], r uniform, with probability p; independently for every i and f.

    `marginals` is a table with the same columns, usually the training rows: a random row of it, drawn afresh
    for every feature, is a draw from the feature's empirical marginal, missing values included. `index` says
    which row of the data set each row is. Tables that belong together (numbers, categories) take different
    names, so that their features are drawn independently. The values replaced at p are among those replaced
    at any larger p, by the same draws.
    """
    if not 0.0 <= p <= 1.0:
        raise ShiftError(f"p is {p}, but a probability lies between 0 and 1.")
    if rows.ndim != 2 or marginals.ndim != 2 or rows.shape[1] != marginals.shape[1]:
        raise ShiftError(
            f"rows has shape {tuple(rows.shape)} and marginals {tuple(marginals.shape)}, "
            "but both must be tables with the same columns."
        )
    if len(marginals) == 0:
        raise ShiftError("marginals has no rows, so there is nothing to draw from.")
    indices = check_index(index, len(rows), "rows")
    width = rows.shape[1]
    draws = Draws(seed, f"randomise {name}", 0, indices)
    replaced = draws.uniform(width).to(torch.float64) < p
    source = draws.integers(0, len(marginals), width)
    if isinstance(rows, Tensor):
        there = torch.as_tensor(marginals)
        drawn = there.gather(0, source.to(there.device)).to(rows.device)
        return torch.where(replaced.to(rows.device), drawn, rows)
    picked = np.take_along_axis(np.asarray(marginals), source.numpy(), axis=0)
    return np.where(replaced.numpy(), picked, rows)
