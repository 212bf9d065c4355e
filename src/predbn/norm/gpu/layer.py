"""A layer of a network in three kernels: sums, statistics, normalisation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..statistics import Statistics
from .normalise import normalise
from .rules import Bounds, Mix, Mixture, Rule
from .statistics import statistics
from .sums import sums, tiling_of


class Normalised(NamedTuple):
    """What a layer has computed.

    values  the normalised values
    batch   the statistics of the batch, or of each group, [groups, C]
    used    those that the rule has mixed with its reference, [groups, C]; None for other rules
    """

    values: Tensor
    batch: Statistics
    used: Statistics | None


def normalise_by_rule(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rule: Rule,
    groups: int = 1,
    bounds: Bounds | None = None,
) -> Normalised:
    """Normalise x, [N, C, …] and dense, whose examples are `groups` batches of the same size."""
    examples = len(x)
    is_bad, parts = None, groups
    if bounds is not None:
        is_bad, parts = torch.zeros(examples, dtype=torch.int32, device=x.device), examples
    tiling = tiling_of(x, parts)
    found = sums(x, tiling, is_bad)
    tables, block_sums = statistics(found, examples // groups, tiling.rows, eps, rule, bounds, is_bad)
    batch, used = Statistics(tables[0], tables[1]), Statistics(tables[2], tables[3])
    mixture = rule if isinstance(rule, Mixture) else None
    is_mixed = isinstance(rule, Mix) and rule.reference is not None
    chosen = used if is_mixed or mixture is not None else batch
    y = normalise(x, chosen, weight, bias, eps, mixture, block_sums)
    return Normalised(y, batch, used if is_mixed else None)
