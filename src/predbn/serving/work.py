"""What goes through the server: the rows of one request, and what the model says about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .tensors import Array


@dataclass(frozen=True, eq=False)
class Work:
    """The rows of one request. They are one batch: predictions never depend on what else is predicted with them.

    stream   where the rows come from; None if they stand alone, and nothing is kept about them
    starts   forget what is known about the stream first, because it begins anew
    ends     forget the stream when the rows have been predicted
    """

    rows: Array
    stream: str | None = None
    starts: bool = False
    ends: bool = False


class Prediction(NamedTuple):
    """Class scores of the rows of one request, [N, K] each."""

    probabilities: Array
    logits: Array
