"""Shifts for tables: each value is replaced with probability p.

If the new value is drawn from the feature's marginal, each feature keeps its distribution, and only its relation to the
other features and the label is lost. If it is an arbitrary token (for categories), the distribution of the feature
changes as well. p = 0 leaves the table unchanged; at p = 1 no information is left.
"""

from __future__ import annotations

import torch
from torch import Tensor

from predbn.common import Draws, ShiftError

from .corrupt import Index, check_index


def randomise_features(
    rows: Tensor, p: float, *, marginals: Tensor, seed: int, index: Index, name: str = "features"
) -> Tensor:
    """Replace x[i, f] by marginals[r, f], r uniform, with probability p; independently for every i and f.

    `marginals` is a table with the same columns, usually the training rows: the value of a random row, drawn again for
    every feature, is a draw from the feature's empirical marginal, including missing values. `index` is the position
    of each row in its data set. Tables that belong together (numbers, categories) need different names, so that their
    features are drawn independently. The values replaced at p are also replaced at any larger p, by the same values.
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
    draws = Draws(seed, f"randomise {name}", 0, indices, rows.device)
    replaced = draws.uniform(width).to(torch.float64) < p
    source = draws.integers(0, len(marginals), width)
    values = marginals.gather(0, source.to(marginals.device)).to(rows.device)
    return torch.where(replaced, values, rows)


def randomise_tokens(tokens: Tensor, p: float, *, seed: int, index: Index, together: Tensor | None = None) -> Tensor:
    """Replace t[i, f] by a token drawn uniformly from all 2³², with probability p.

    `tokens` are int32 [n, features], such as hashes; `index` is the position of each row in its data set. Whether a
    value is replaced is drawn independently for every i and f. If `together` [n] gives a group number for each row, it
    is drawn once for all rows of a group and every f. The values replaced at p are also replaced at any larger p, by
    the same tokens.
    """
    _check_probability(p)
    if tokens.ndim != 2 or tokens.dtype != torch.int32:
        raise ShiftError(f"tokens are {tokens.dtype} {tuple(tokens.shape)}, but they must be int32 [rows, features].")
    indices = check_index(index, len(tokens), "rows")
    groups = indices if together is None else check_index(together, len(tokens), "rows")
    width, device = tokens.shape[1], tokens.device
    replaced = Draws(seed, "randomise tokens", 0, groups, device).uniform(width) < p
    new_tokens = Draws(seed, "new tokens", 0, indices, device).bits(width)
    return torch.where(replaced, new_tokens, tokens)


def _check_probability(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise ShiftError(f"p is {p}, but a probability must be between 0 and 1.")
