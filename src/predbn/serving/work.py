"""The rows of a request and their prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .tensors import Array


@dataclass(frozen=True, eq=False)
class Work:
    """The rows of one request. They are one batch: predictions never depend on other requests.

    stream   the source of the rows; None if they stand alone, and nothing is kept about them
    starts   forget the stream before the rows are predicted
    ends     forget the stream after the rows are predicted
    client   who has sent them; clients, and the streams of each, have equal shares of the model
    """

    rows: Array
    stream: str | None = None
    starts: bool = False
    ends: bool = False
    client: str = ""


class Prediction(NamedTuple):
    """Class scores of the rows of one request, [N, K] each."""

    probabilities: Array
    logits: Array
