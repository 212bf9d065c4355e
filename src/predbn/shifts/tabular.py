"""Shifts for tables: features that are no longer what they were.

With probability p a value is replaced. By one drawn from its feature's marginal, and each feature by itself still
looks as before; what breaks is what ties features and label together. Or, for categories, by a token that may be any:
then the feature itself is distributed otherwise too. p = 0 leaves the table alone, p = 1 leaves nothing to learn from.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws, ShiftError

from .corrupt import Index, check_index

__all__ = ["randomise_features", "randomise_tokens"]

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
    _check_probability(p)
    if rows.ndim != 2 or marginals.ndim != 2 or rows.shape[1] != marginals.shape[1]:
        raise ShiftError(
            f"rows has shape {tuple(rows.shape)} and marginals {tuple(marginals.shape)}, "
            "but both must be tables with the same columns."
        )
    if len(marginals) == 0:
        raise ShiftError("marginals has no rows, so there is nothing to draw from.")
    indices = check_index(index, len(rows), "rows")
    width = rows.shape[1]
    device = rows.device if isinstance(rows, Tensor) else "cpu"
    draws = Draws(seed, f"randomise {name}", 0, indices, device)
    replaced = draws.uniform(width).to(torch.float64) < p
    source = draws.integers(0, len(marginals), width)
    if isinstance(rows, Tensor):
        there = torch.as_tensor(marginals)
        drawn = there.gather(0, source.to(there.device)).to(rows.device)
        return torch.where(replaced, drawn, rows)
    picked = np.take_along_axis(np.asarray(marginals), source.numpy(), axis=0)
    return np.where(replaced.numpy(), picked, rows)


def randomise_tokens(
    tokens: Tensor, p: float, *, seed: int, index: Index, together: Tensor | None = None, name: str = "tokens"
) -> Tensor:
    """Replace t[i, f] by a token drawn uniformly from all 2³² with probability p.

    `tokens` are int32 [n, features], each bit of them as good as another, as hashes are; `index` says which row of the
    data set each row is. Whether a value is replaced is drawn independently for every i and f, or, where `together`
    [n] numbers groups of rows, once for all rows of a group and every f. The values replaced at p are among those
    replaced at any larger p, by the same tokens.
    """
    _check_probability(p)
    if tokens.ndim != 2 or tokens.dtype != torch.int32:
        raise ShiftError(f"tokens are {tokens.dtype} {tuple(tokens.shape)}, but must be int32 [rows, features].")
    indices = check_index(index, len(tokens), "rows")
    groups = indices if together is None else check_index(together, len(tokens), "rows")
    width, device = tokens.shape[1], tokens.device
    replaced = Draws(seed, f"randomise {name}", 0, groups, device).uniform(width) < p
    drawn = Draws(seed, f"new {name}", 0, indices, device).bits(width)
    return torch.where(replaced, drawn, tokens)


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ShiftError(f"p is {p}, but a probability lies between 0 and 1.")
