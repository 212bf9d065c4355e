"""Which classes a stream holds: those of its last batch, and those that are expected next.

Let π be the shares of the classes that the model has predicted in a batch, u = 1 − the mean confidence of these
predictions, and π_s the shares in the source. ‖·‖² is a sum of squares over the classes.

1. A share u of the predictions is in doubt, which may make π wrong by u² (in ‖·‖²). As far as that explains the
   difference from the source, it is not believed:

       π_c = π_s + λ·(π − π_s),    λ = max(0, 1 − u²/‖π − π_s‖²),

   and π_c is off by c² = min(u², ‖π − π_s‖²). Shares of mixed classes stay those of the source; a batch of one class
   is known to be one.

2. How far a batch tells the classes of the next one is learned from the batches so far, i being an earlier batch:

       π̂ = π_s + ρ·(π_c − π_s),    ρ = Σ (π_i − π_s)·(π_c − π_s)_{i−1} / Σ ‖π_c − π_s‖²_{i−1},    0 ≤ ρ ≤ 1.

   In a stream sorted by class ρ is near 1, in a mixed one near 0.

3. π̂ misses the classes of a batch by e² = the mean of ‖π − π̂‖² over the batches so far. Without any, e² = 1: the
   batch may be of one class. In a mixed stream of batches of n, e² is about 1/n, which is chance.

Older batches count less in the sums of 2 and 3, and in the mean of u, by 1 − momentum for each batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..segments import Segments
from .composition import is_class_scores, predicted_classes, shares_of_groups, source_shares

_PRIOR_PERSISTENCE = 0.1
"""Added to the denominator of ρ: nothing is known about a stream that begins."""
_PRIOR_ERROR = 0.2
"""How many batches the e² = 1 of a stream that begins counts for."""
_MIN_DISTANCE = 1e-12
"""Nothing is divided by less."""


class StreamClasses(NamedTuple):
    """What a stream's classes are; K classes. Those of S streams have a first dimension of streams.

    shares     π_c of the last batch, [K]
    expected   π̂ of the next one, [K]
    errors     c² of `shares`, e² of `expected`, and the mean of u over the batches so far, [3]
    sums       the sums of ρ (above and below the line), of ‖π − π̂‖², of u and of weights, [5]
    """

    shares: Tensor
    expected: Tensor
    errors: Tensor
    sums: Tensor

    @classmethod
    def of(cls, sizes: Tensor) -> StreamClasses:
        """A stream that begins, for a source with so many examples of each class."""
        source = source_shares(sizes).float()
        return cls(source, source, source.new_ones(3), source.new_zeros(5))

    def after(
        self,
        output: Tensor,
        sizes: Tensor,
        groups: Tensor | None,
        momentum: float,
        sync: bool,
        process_group: Any,
        segments: Segments | None = None,
    ) -> StreamClasses:
        """The classes when the model has given this output for a batch. `groups` is the group of each class, if classes
        are put into groups, which then take the place of classes. With segments they are those of several
        streams."""
        shares, doubt, _ = predicted_classes(output, segments, sync=sync, process_group=process_group)
        if groups is not None:
            shares = shares_of_groups(shares, groups, len(sizes))
        source = source_shares(sizes).to(shares)
        before, expected = (t.to(shares).expand_as(shares) for t in (self.shares, self.expected))
        step, step_before, miss = shares - source, before - source, shares - expected
        distance, unsure = _product(step, step), doubt * doubt
        believed = source + (1 - unsure / distance.clamp(min=_MIN_DISTANCE)).clamp(min=0) * step
        products = [_product(a, b) for a, b in ((step, step_before), (step_before, step_before), (miss, miss))]
        sums = (1 - momentum) * self.sums.to(shares) + torch.cat([*products, doubt, torch.ones_like(distance)], -1)
        above, below, misses, doubts, weights = sums.split(1, -1)
        persistence = (above / (below + _PRIOR_PERSISTENCE)).clamp(0, 1)
        error = (misses + _PRIOR_ERROR) / (weights + _PRIOR_ERROR)
        errors = torch.cat([torch.minimum(unsure, distance), error, doubts / weights], -1)
        return StreamClasses(believed, source + persistence * (believed - source), errors, sums)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Σ a·b over the classes, […, 1]."""
    return (a * b).sum(-1, keepdim=True)


def gives_classes(output: Any, count: int) -> bool:
    """Whether a model's output are the scores of so many classes, [N, K]."""
    return is_class_scores(output) and output.shape[1] == count
