"""Which classes a batch holds, as far as the model itself can tell.

A batch of few classes differs from the source although nothing has shifted. What its classes explain must not be taken
for a shift. The classes are those that the model predicts; labels are not needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Composition(NamedTuple):
    """The classes of a batch, or of each of G groups.

    `shares` are the shares π of the predicted classes, [K] or [G, K]; None if nothing is known about them. `doubt` is
    u = 1 − the mean confidence of the predictions, [1] or [G, 1]; 1 if nothing is known.
    """

    shares: Tensor | None = None
    doubt: Tensor | float = 1.0


def composition_of(output: Any, group: int | None) -> Composition | None:
    """The classes that a model has predicted; None if its output is not [examples, classes].

    Predicted classes are counted, and not their probabilities added up, because calibration counts them too.
    """
    is_logits = isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] > 1 and output.shape[0] > 0
    if not is_logits or not output.is_floating_point():
        return None
    probabilities = output.detach().float().softmax(1)
    confidence, classes = probabilities.max(1)
    is_class = (classes[:, None] == torch.arange(output.shape[1], device=output.device)).float()
    rows = torch.cat([is_class, confidence[:, None]], 1)
    # An example that is not finite has no class; the others must not notice it.
    is_good = confidence.isfinite()[:, None]
    rows, weight = torch.where(is_good, rows, 0.0), is_good.float()
    if group is not None:
        rows, weight = rows.unflatten(0, (-1, group)), weight.unflatten(0, (-1, group))
    means = rows.sum(-2) / weight.sum(-2).clamp(min=1)
    return Composition(means[..., :-1], 1 - means[..., -1:])
