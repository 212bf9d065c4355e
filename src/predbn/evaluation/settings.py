"""A strategy with the other options of `predbn.adapt`, as one text: ``batch[eps=0.01, layers=last]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from predbn.common import EvaluationError
from predbn.norm import Population, Strategy, find_strategy

_FORMAT = re.compile(r"\s*([^\[\]]+?)\s*(?:\[(.*)\])?\s*")


@dataclass(frozen=True)
class Setting:
    """Which layers take their statistics from where, and with which eps.

    `eps` is a number, None for the layers' own, or "tuned": chosen on the validation data, for each model separately.
    `layers` is "all", "first", "last" or a pattern of layer names.
    """

    strategy: Strategy
    eps: float | Literal["tuned"] | None = None
    layers: str = "all"

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read ``"batch"``, ``"prior(N=16)"`` or ``"batch[eps=0.01, layers=last]"``."""
        match = _FORMAT.fullmatch(text)
        if not match:
            raise EvaluationError(f"strategy {text!r} cannot be read: write it as in batch[eps=0.01, layers=last].")
        options = dict(_parse_option(text, part) for part in (match[2] or "").split(",") if part.strip())
        eps: float | Literal["tuned"] | None = None
        if "eps" in options:
            eps = "tuned" if options["eps"] == "tuned" else _parse_eps(text, options["eps"])
        return cls(find_strategy(match[1]), eps, options.get("layers", "all"))

    def __str__(self) -> str:
        """The text that `parse` reads, always written in the same way: it is the name of the setting in results."""
        options = [f"eps={self.eps}"] if self.eps is not None else []
        options += [f"layers={self.layers}"] if self.layers != "all" else []
        return f"{self.strategy}[{', '.join(options)}]" if options else str(self.strategy)

    @property
    def is_identity(self) -> bool:
        """Whether the model predicts as if it were not adapted; it then needs no batch norm layer."""
        return self.strategy.is_identity and self.eps is None

    @property
    def needs_whole_stream(self) -> bool:
        """Whether it needs all images of a split before it predicts the first."""
        return isinstance(self.strategy, Population)


def _parse_option(text: str, part: str) -> tuple[str, str]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if name not in ("eps", "layers") or not equals or not value:
        raise EvaluationError(f"strategy {text!r} has the option {part.strip()!r}: use eps=… or layers=….")
    return name, value


def _parse_eps(text: str, value: str) -> float:
    try:
        eps = float(value)
    except ValueError:
        eps = -1.0
    if not 0 <= eps < float("inf"):
        raise EvaluationError(f"strategy {text!r} has eps={value}: use a number, 0 or more, or the word tuned.")
    return eps
