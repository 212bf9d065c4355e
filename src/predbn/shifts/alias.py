"""Noise that acts on each value by itself, drawn by table.

An 8-bit image has 256 grey levels before and after. Noise that treats every value alone is therefore
nothing but a 256 × 256 matrix P, with P[g, k] the probability that level g becomes level k, and drawing it
is drawing k from row g. Walker's alias method does that with one random word and one look-up: each row is
cut into 256 columns of equal mass, column k holding level k with probability q[g, k] and one other level,
its alias a[g, k], with the rest. The matrix is computed in float64, so the distribution of the result is
exact to 2⁻²⁴, and since only integers are handled every device draws the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.shifts.random import Draws

__all__ = ["alias_table", "draw"]

_HALF = 1 << 23


def alias_table(matrix: npt.NDArray[np.float64]) -> Tensor:
    """The rows of a 256 × 256 stochastic matrix as alias tables: int32 [65536], (threshold << 8) | alias.

    All rows are filled side by side. In each row the columns with less than their share come first, those
    with more come last; the first column with more (the giver) fills up one column after another, and once
    it has itself fallen below its share it is filled up by the next giver. Every step settles one column.
    """
    share = matrix * (256.0 / matrix.sum(axis=1, keepdims=True))
    rows = np.arange(256)
    order = np.argsort(share >= 1.0, axis=1, kind="stable")
    taker = np.zeros(256, dtype=np.int64)
    giver = (share < 1.0).sum(axis=1)
    threshold = np.full((256, 256), float(1 << 24))
    alias = np.tile(np.arange(256), (256, 1))
    smalls = giver.copy()
    for _ in range(255):
        here = order[rows, np.minimum(giver, 255)]
        drained = share[rows, here] < 1.0
        after = order[rows, np.minimum(giver + 1, 255)]
        filled = np.where(drained, here, order[rows, np.minimum(taker, 255)])
        source = np.where(drained, after, here)
        live = np.where(drained, giver < 255, (taker < smalls) & (giver < 256))
        at, column, origin = rows[live], filled[live], source[live]
        threshold[at, column] = share[at, column] * float(1 << 24)
        alias[at, column] = origin
        share[at, origin] -= 1.0 - share[at, column]
        giver += drained & live
        taker += ~drained & live
    limit = np.clip(np.rint(threshold), 0, (1 << 24) - 1).astype(np.int64) - _HALF
    return torch.from_numpy(((limit << 8) | alias).astype(np.int32).reshape(-1))


def draw(x: Tensor, table: Tensor, draws: Draws) -> Tensor:
    """Replace each grey level g of the uint8 images x by one drawn from row g.

    The low 8 bits of a word choose the column k, the upper 24 are compared with the threshold; the
    comparison is done as a subtraction whose sign bit is spread to a mask, and the choice as

        k' = a ^ ((a ^ k) & mask).
    """
    word = draws.bits(*x.shape[1:])
    place = x.to(torch.int32).bitwise_left_shift_(8).bitwise_or_(word & 0xFF)
    entry = table.index_select(0, place.view(-1)).view_as(word)
    mask = (word >> 8).sub_(entry >> 8).bitwise_right_shift_(31)
    return word.bitwise_xor_(entry).bitwise_and_(mask).bitwise_xor_(entry).to(torch.uint8)
