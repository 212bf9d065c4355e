"""Noise that acts on each value by itself, drawn by table.

An 8-bit image has 256 grey levels before and after. Noise that treats every value alone is therefore
nothing but a 256 × 256 matrix P, with P[g, k] the probability that level g becomes level k, and drawing it
is drawing k from row g. Walker's alias method does that with one random word and one look-up: each row is
cut into 256 columns of equal mass, column k holding level k with probability q[g, k] and one other level,
its alias a[g, k], with the rest.

Words of 16 bits, 8 to choose the column and 8 to choose within it, give every probability as a multiple of
2⁻¹⁶: the matrix is rounded to such multiples first, so that no probability is off by as much as 2⁻¹⁶, and
the tables then hold the rounded matrix exactly. Only integers are handled: every device draws the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from predbn.common import Draws

__all__ = ["alias_table", "draw", "in_units"]

_ROWS = np.arange(256)


def in_units(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """A stochastic matrix in units of 2⁻¹⁶, by largest remainders, so that each row adds up to 2¹⁶."""
    scaled = matrix * (65536.0 / matrix.sum(axis=1, keepdims=True))
    units: npt.NDArray[np.int64] = np.floor(scaled).astype(np.int64)
    rank = np.argsort(np.argsort(units - scaled, axis=1, kind="stable"), axis=1, kind="stable")
    units += rank < 65536 - units.sum(axis=1, keepdims=True)
    return units


def alias_table(matrix: npt.NDArray[np.float64]) -> Tensor:
    """The rows of a 256 × 256 stochastic matrix as alias tables, int16 [65536].

    Row g, column k is entry (256·g + k) ^ 2¹⁵, which is what a signed 16-bit number with that pattern counts
    from its smallest value; it holds (threshold − 128, alias) in its two bytes.

    All rows are filled side by side. In each row the columns with less than their share come first, those
    with more come last; the first column with more (the giver) fills up one column after another, and once
    it has itself fallen below its share it is filled up by the next giver. Every step settles one column.
    """
    share = in_units(matrix)
    order = np.argsort(share >= 256, axis=1, kind="stable")
    smalls = (share < 256).sum(axis=1)
    taker, giver = np.zeros(256, dtype=np.int64), smalls.copy()
    threshold = np.full((256, 256), 255)
    alias = np.tile(np.arange(256), (256, 1))
    for _ in range(255):
        here = order[_ROWS, np.minimum(giver, 255)]
        drained = share[_ROWS, here] < 256
        filled = np.where(drained, here, order[_ROWS, np.minimum(taker, 255)])
        source = np.where(drained, order[_ROWS, np.minimum(giver + 1, 255)], here)
        live = np.where(drained, giver < 255, (taker < smalls) & (giver < 256))
        row, column, origin = _ROWS[live], filled[live], source[live]
        threshold[row, column] = share[row, column]
        alias[row, column] = origin
        share[row, origin] -= 256 - share[row, column]
        giver += drained & live
        taker += ~drained & live
    entries = (((threshold - 128) << 8) | alias).astype(np.int16).reshape(-1)
    return torch.from_numpy(np.roll(entries, 1 << 15))


def draw(x: Tensor, table: Tensor, draws: Draws) -> Tensor:
    """Replace each grey level g of the uint8 images x by one drawn from row g.

    The low 8 bits of a word choose the column k, the upper 8 are compared with the threshold; the comparison
    is done as a subtraction whose sign bit is spread to a mask, and the choice as

        k' = a ^ ((a ^ k) & mask).
    """
    word = draws.halves(*x.shape[1:])
    place = x.to(torch.int16).bitwise_left_shift_(8).bitwise_or_(word & 0xFF)
    entry = table.index_select(0, place.view(-1).to(torch.int32).add_(1 << 15)).view_as(word)
    mask = (word >> 8).sub_(entry >> 8).bitwise_right_shift_(15)
    return word.bitwise_xor_(entry).bitwise_and_(mask).bitwise_xor_(entry).to(torch.uint8)
