"""A strategy together with the other options of `predbn.adapt`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from predbn.common import EvaluationError, short_spec
from predbn.norm import Population, Strategy, Train, find_strategy

_SETTING = re.compile(r"([^\[\]]+)(?:\[(.*)\])?")


@dataclass(frozen=True)
class Setting:
    """A strategy with the other options of `predbn.adapt`, written as one string: ``batch[eps=0.01, layers=last]``.

    `eps` is a number, or None for the layers' own. `layers` is "all", "first", "last" or a pattern of layer names.
    `robust` bounds the influence of each example; None stands for the strategy's own default.
    """

    strategy: Strategy
    eps: float | None = None
    layers: str = "all"
    robust: bool | None = None

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read ``"batch"``, ``"prior(N=16)"`` or ``"batch[eps=0.01, layers=last]"``."""
        match = _SETTING.fullmatch(text.strip())
        if not match:
            raise EvaluationError(f"strategy {text!r} cannot be read: write it as in batch[eps=0.01, layers=last].")
        options = dict(_parse_option(text, part) for part in (match[2] or "").split(",") if part.strip())
        eps = _parse_eps(text, options["eps"]) if "eps" in options else None
        if options.get("robust", "True") not in ("True", "False"):
            raise EvaluationError(f"strategy {text!r} has robust={options['robust']}: use True or False.")
        strategy = find_strategy(match[1].strip())
        robust = options["robust"] == "True" if "robust" in options else None
        if robust is (strategy.bounds is not None):
            robust = None
        return cls(strategy, eps, options.get("layers", "all"), robust)

    def __str__(self) -> str:
        """The canonical string, which `parse` reads: the name of the setting in results."""
        return self._with_options(str(self.strategy))

    @property
    def short(self) -> str:
        """The same without the strategy's default arguments, for people."""
        return self._with_options(short_spec(self.strategy.name, self.strategy))

    @property
    def options(self) -> dict[str, Any]:
        given = {"eps": self.eps, "layers": self.layers if self.layers != "all" else None, "robust": self.robust}
        return {name: value for name, value in given.items() if value is not None}

    def _with_options(self, strategy: str) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{strategy}[{options}]" if options else strategy

    @property
    def is_identity(self) -> bool:
        """Whether the model predicts as if it were not adapted; it then needs no batch norm layer."""
        return isinstance(self.strategy, Train) and self.eps is None

    @property
    def needs_whole_stream(self) -> bool:
        """Whether it needs all images of a split before it predicts the first."""
        return isinstance(self.strategy, Population)


def _parse_option(text: str, part: str) -> tuple[str, str]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if name not in ("eps", "layers", "robust") or not equals or not value:
        raise EvaluationError(f"strategy {text!r} has the option {part.strip()!r}: use eps=…, layers=… or robust=True.")
    return name, value


def _parse_eps(text: str, value: str) -> float:
    try:
        eps = float(value)
    except ValueError:
        eps = -1.0
    if not 0 <= eps < float("inf"):
        raise EvaluationError(f"strategy {text!r} has eps={value}: use a number of at least 0.")
    return eps
