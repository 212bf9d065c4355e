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
    is_logits = isinstance(output, Tensor) and output.dim() == 2 and output.shape[1] > 1 and len(output) > 0
    if not is_logits or not output.is_floating_point():
        return None
    confidence, classes = output.detach().float().softmax(1).max(1)
    is_class = (classes[:, None] == torch.arange(output.shape[1], device=output.device)).float()
    if group is None:
        return Composition(is_class.mean(0), 1 - confidence.mean(0, keepdim=True))
    shares = is_class.unflatten(0, (-1, group)).mean(1)
    return Composition(shares, 1 - confidence.unflatten(0, (-1, group)).mean(1, keepdim=True))
