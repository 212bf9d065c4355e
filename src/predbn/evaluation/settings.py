"""A strategy with what `predbn.adapt` takes beside it, as one word: ``batch[eps=0.01, layers=last]``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from predbn.common import EvaluationError
from predbn.norm import Population, Strategy
from predbn.norm import find_strategy as find

__all__ = ["Setting"]

_WRITTEN = re.compile(r"\s*([^\[\]]+?)\s*(?:\[(.*)\])?\s*")


@dataclass(frozen=True)
class Setting:
    """Where which layers take their statistics from, and with which eps.

    `eps` is a number, None for the layers' own, or "tuned": chosen on the validation data, for each model by itself.
    `layers` is "all", "first", "last" or a pattern of names.
    """

    strategy: Strategy
    eps: float | Literal["tuned"] | None = None
    layers: str = "all"

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read ``"batch"``, ``"prior(N=16)"`` or ``"batch[eps=0.01, layers=last]"``."""
        found = _WRITTEN.fullmatch(text)
        if not found:
            raise EvaluationError(f"strategy {text!r} cannot be read: write it as in batch[eps=0.01, layers=last].")
        given = dict(_option(text, part) for part in (found[2] or "").split(",") if part.strip())
        eps: float | Literal["tuned"] | None = None
        if "eps" in given:
            eps = "tuned" if given["eps"] == "tuned" else _number(text, given["eps"])
        return cls(find(found[1]), eps, given.get("layers", "all"))

    def __str__(self) -> str:
        """The text that `parse` reads, written in one way only: it is what names the setting in results."""
        options = [f"eps={self.eps}"] if self.eps is not None else []
        options += [f"layers={self.layers}"] if self.layers != "all" else []
        return f"{self.strategy}[{', '.join(options)}]" if options else str(self.strategy)

    @property
    def is_identity(self) -> bool:
        """Whether the model simply does what it did before, so that it needs no batch norm at all."""
        return self.strategy.is_identity and self.eps is None

    @property
    def looks_ahead(self) -> bool:
        """Whether it needs a split's images before it predicts them."""
        return isinstance(self.strategy, Population)


def _option(text: str, part: str) -> tuple[str, str]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if name not in ("eps", "layers") or not equals or not value:
        raise EvaluationError(f"strategy {text!r} has the option {part.strip()!r}: there are eps=… and layers=….")
    return name, value


def _number(text: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise EvaluationError(f"strategy {text!r} has eps={value}: it is a number of 0 or more, or the word tuned.")
    return number
