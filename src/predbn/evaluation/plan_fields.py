"""The declaration of a plan's fields: their checks and the options of `predbn evaluate` follow from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from predbn.common import EvaluationError

_INT64 = 2**63
_TYPE_NAMES = {str: "a string", int: "an integer", bool: "true or false"}


@dataclass(frozen=True)
class PlanField:
    """What a field of a plan holds.

    help      the help text of its option
    option    the name of its option, without dashes
    kind      the type of a value: str, int or bool
    default   a tuple for a field of several values, None for an optional one
    min, max  the bounds of an integer, inclusive
    words     the only strings allowed; for integers, the strings allowed beside numbers
    """

    help: str
    option: str
    kind: type
    default: Any
    min: int
    max: int
    words: tuple[str, ...]

    @property
    def repeated(self) -> bool:
        return isinstance(self.default, tuple)

    @property
    def expected(self) -> str:
        """The values that are allowed, in words."""
        expected = f"one of {', '.join(self.words)}" if self.words and self.kind is str else _TYPE_NAMES[self.kind]
        if self.kind is int and self.min > -_INT64:
            expected += f" of at least {self.min}" if self.max == _INT64 - 1 else f" from {self.min} to {self.max:,}"
        elif self.kind is int:
            expected += " of 64 bits"
        if self.kind is int and self.words:
            expected += f" or {' or '.join(map(repr, self.words))}"
        return expected

    def check(self, name: str, given: Any) -> Any:
        """Check the value of a field and return it: for a repeated field as a tuple without duplicates."""
        if not self.repeated:
            if given is not None or self.default is not None:
                self._check_one(name, given)
            return given
        values = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
        for value in values:
            self._check_one(name, value)
        return tuple(dict.fromkeys(values))

    def _check_one(self, name: str, value: Any) -> None:
        is_kind = isinstance(value, self.kind) and (self.kind is bool or not isinstance(value, bool))
        if self.kind is int:
            is_allowed = (is_kind and self.min <= value <= self.max) or (isinstance(value, str) and value in self.words)
        else:
            is_allowed = is_kind and (not self.words or value in self.words)
        if not is_allowed:
            raise EvaluationError(f"expected {name} to be {self.expected}, but got {value!r}.")

    def parse(self, text: str) -> str | int:
        """Read a value from the command line; what is not a number stays a string, which `check` refuses."""
        if self.kind is int and text not in self.words:
            try:
                return int(text)
            except ValueError:
                return text
        return text


def plan_field(
    default: Any,
    help: str,
    *,
    option: str = "",
    kind: type = str,
    min: int = -_INT64,
    max: int = _INT64 - 1,
    words: tuple[str, ...] = (),
) -> Any:
    """Declare a field of a plan: a tuple as default makes it a repeated one, None an optional one."""
    return field(default=default, metadata={"plan": PlanField(help, option, kind, default, min, max, words)})
