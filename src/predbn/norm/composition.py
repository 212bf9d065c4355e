"""Which classes a batch holds, as far as the model itself can tell.

A batch of few classes differs from the source although nothing has shifted. What its classes explain must not be taken
for a shift. The classes are those that the model predicts; labels are not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .kernels import can_use_triton
from .stream_rows import StreamRows

if TYPE_CHECKING:
    from .calibration import Calibration


class Composition(NamedTuple):
    """The classes of a batch, or of each of G groups or streams.

    `shares` are the shares π of the predicted classes, [K] or [G, K]; None if nothing is known about them. `doubt` is
    u = 1 − the mean confidence of the predictions, [1] or [G, 1]; 1 if nothing is known. `evenness` says how far these
    are the classes of the source (`Calibration.evenness`). The last two are for the kernels of a GPU: the shares of the
    groups of classes that a calibration has, and Σ π_k² over the classes.
    """

    shares: Tensor | None = None
    doubt: Tensor | float = 1.0
    evenness: Tensor | None = None
    group_shares: Tensor | None = None
    squares: Tensor | None = None

    def completed(self, clean: Calibration, *, for_kernels: bool) -> Composition:
        """With what all layers need, which is computed once."""
        if self.shares is None:
            return self
        evenness = clean.evenness(self.shares).contiguous()
        if not for_kernels:
            return Composition(self.shares, self.doubt, evenness)
        squares = (self.shares * self.shares).sum(-1, keepdim=True)
        group_shares = clean.group_shares(self.shares).contiguous()
        return Composition(self.shares, self.doubt, evenness, group_shares, squares)


def is_class_scores(output: Any) -> bool:
    """Whether a model's output are the scores of classes, [examples, classes]."""
    is_scores = isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] > 1
    return is_scores and output.is_floating_point()


def composition_of(output: Any, group: int | None, rows: StreamRows | None = None) -> Composition | None:
    """The classes that a model has predicted; None if its output is not [examples, classes]."""
    if not is_class_scores(output) or output.shape[0] == 0 or (rows is not None and len(rows) != len(output)):
        return None
    means, _ = mean_predictions(output, group, rows)
    return Composition(means[..., :-1], (1 - means[..., -1:]).contiguous())


def mean_predictions(
    scores: Tensor, group: int | None = None, streams: StreamRows | None = None
) -> tuple[Tensor, Tensor]:
    """The share of each class and the mean confidence of the predictions, […, K + 1], and of how many examples, […, 1].

    Predicted classes are counted, and not their probabilities added up, because calibration counts them too. An example
    that is not finite has no class, and the others must not notice it.
    """
    if group is None and streams is None and can_use_triton(scores):
        from .gpu.predictions import can_be_counted
        from .gpu.predictions import mean_predictions as run

        if can_be_counted(scores):
            return run(scores)
    confidence, classes = scores.detach().float().softmax(1).max(1)
    is_class = (classes[:, None] == torch.arange(scores.shape[1], device=scores.device)).float()
    rows = torch.cat([is_class, confidence[:, None]], 1)
    is_good = confidence.isfinite()[:, None]
    rows, weight = torch.where(is_good, rows, 0.0), is_good.float()
    if streams is not None:
        count = streams.sum(weight)
        return streams.sum(rows) / count.clamp(min=1), count
    if group is not None:
        rows, weight = rows.unflatten(0, (-1, group)), weight.unflatten(0, (-1, group))
    count = weight.sum(-2)
    return rows.sum(-2) / count.clamp(min=1), count


def source_shares(sizes: Tensor) -> Tensor:
    """π_s: the shares of the classes in the source, of which so many examples were seen, [K]."""
    return sizes / sizes.sum().clamp(min=1)


def shares_of_groups(shares: Tensor, groups: Tensor, count: int) -> Tensor:
    """The shares of `count` groups of classes, […, G], from those of the classes, […, K]. `groups` is each one's."""
    return shares.new_zeros(*shares.shape[:-1], count).index_add(-1, groups.to(shares.device), shares)
