"""The interface of a strategy, and finding one by name."""

from __future__ import annotations

import ast
import difflib
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from ..errors import AdaptationError
from ..observation import Observation
from ..statistics import Statistics


@dataclass(frozen=True)
class Strategy(ABC):
    """Where a layer's statistics come from.

    A strategy is a small immutable object: its fields are its arguments, its class attribute `name`
    makes it known to `adapt`. What it remembers between batches it puts into `observation.state`, as
    tensors and integers, and never in itself: one object serves all layers, streams and models.
    """

    name: ClassVar[str]
    keeps_state: ClassVar[bool] = False
    """Whether a batch changes how later ones are normalised. Such a model cannot be exported."""
    varies: ClassVar[bool] = True
    """Whether statistics depend on the batch being predicted. Where they don't, they can be folded."""

    _by_name: ClassVar[dict[str, type[Strategy]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Strategy._by_name[cls.name] = cls

    @abstractmethod
    def statistics(self, observation: Observation) -> Statistics:
        """The statistics to normalise this batch with."""

    @property
    def uses_batch_alone(self) -> bool:
        """Whether `statistics` is just the batch's own, so that one fused kernel may do it all."""
        return False

    @property
    def is_identity(self) -> bool:
        """Whether the layer simply does what it did before."""
        return False

    def settled(self, state: dict[str, Tensor | int]) -> Statistics | None:
        """The statistics that now stand for a stream in this state, or None if none do yet."""
        return None

    def __str__(self) -> str:
        arguments = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"{self.name}({arguments})" if arguments else self.name


def names() -> list[str]:
    """The strategies known by name."""
    return sorted(Strategy._by_name)


def find(strategy: str | Strategy, **arguments: Any) -> Strategy:
    """A strategy from an object, a name with arguments, or a text such as ``"prior(N=16)"``."""
    if isinstance(strategy, Strategy):
        if arguments:
            raise AdaptationError(
                f"arguments {', '.join(arguments)} were given beside the strategy object {strategy}; "
                "give them to the object itself"
            )
        return strategy
    if not isinstance(strategy, str):
        raise AdaptationError(f"a strategy is a name or a Strategy object, not {type(strategy).__name__}")
    name, written = _parse(strategy)
    if name not in Strategy._by_name:
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f" (did you mean '{near[0]}'?)" if near else ""
        raise AdaptationError(f"unknown strategy '{name}'{hint}; known are {', '.join(names())}")
    cls = Strategy._by_name[name]
    known = [f.name for f in fields(cls)]
    given = {**written, **arguments}
    unknown = [a for a in given if a not in known]
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes no arguments"
        raise AdaptationError(f"strategy '{name}' has no argument '{unknown[0]}'; it {takes}")
    return cls(**given)


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``"name(key=literal, …)"``."""
    if "(" not in text:
        return text.strip(), {}
    try:
        call = ast.parse(text.strip().replace("=inf", "=1e999"), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError
        arguments = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
    except (SyntaxError, ValueError):
        raise AdaptationError(
            f"cannot read strategy '{text}'; write a name, or a name with arguments such as 'prior(N=16)'"
        ) from None
    return call.func.id, arguments
