"""A layer of a network in three kernels: sums, statistics, normalisation; in four for `auto` and `auto_stream`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ..statistics import Statistics
from ..stream_rows import Segments
from .launch import new_zeros
from .mixture import mix_tables
from .normalise import normalise
from .rules import Bounds, Mix, Mixture, Past, Rule
from .statistics import statistics
from .stream_past import follow
from .sums import sums, tiling_of


class Normalised(NamedTuple):
    """What a layer has computed.

    values  the normalised values
    batch   the statistics of the batch, or of each group or stream, [groups, C]
    used    those that the values were normalised with, [groups, C]
    """

    values: Tensor
    batch: Statistics
    used: Statistics


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
        is_bad, parts = new_zeros(examples, x.device), examples
    tiling = tiling_of(x, parts)
    found = sums(x, tiling, is_bad)
    tables, sizes = statistics(found, examples // groups, tiling.rows, eps, rule, bounds, is_bad)
    if isinstance(rule, Mixture):
        assert sizes is not None
        mix_tables(tables, sizes, rule, eps, None)
    return _normalised(x, weight, bias, eps, rule, tables)


def normalise_with(x: Tensor, fixed: Statistics, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Normalise x with statistics [C] that are known."""
    return normalise(x, (fixed.mean[None], fixed.var[None]), weight, bias, eps)


def normalise_streams_by_rule(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rules: Sequence[tuple[Rule, Tensor | None]],
    bounds: Bounds | None,
    segments: Segments,
    is_bad: Tensor,
) -> Normalised:
    """The same for examples of several streams, in any order. Examples that are not finite are left out.

    rules    the rule of all streams, with None; or several that mix, each with the streams that it is for
    is_bad   zeros for all examples, of 32 bits
    """
    tiling = tiling_of(x, x.shape[0])
    found = sums(x, tiling, is_bad)
    tables = None
    for rule, part in rules:
        tables, sizes = statistics(found, 0, tiling.rows, eps, rule, bounds, is_bad, segments, part, tables)
        part = segments.numbers if part is None else part
        if isinstance(rule, Mixture):
            assert sizes is not None
            mix_tables(tables, sizes, rule, eps, part)
        if isinstance(rule, Past):
            assert sizes is not None
            follow(tables, sizes, rule, eps, part)
    assert tables is not None
    return _normalised(x, weight, bias, eps, rules[0][0], tables, segments.streams)


def _normalised(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    rule: Rule,
    tables: Tensor,
    streams: Tensor | None = None,
) -> Normalised:
    tables_of = tables.unbind()
    batch, mixed = Statistics(*tables_of[:2]), Statistics(*tables_of[2:4])
    is_batch = isinstance(rule, Mix) and rule.reference is None
    used = batch if is_batch else mixed
    return Normalised(normalise(x, used, weight, bias, eps, streams=streams), batch, used)
