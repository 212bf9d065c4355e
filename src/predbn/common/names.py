"""Objects by name: ``"prior(N=16)"`` is the dataclass registered as "prior" with its argument.

Strategies and methods are looked up this way.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, cast

from .errors import PredbnError

T = TypeVar("T")


def find_by_name(
    kind: str,
    base: type[Any],
    by_name: Mapping[str, type[T]],
    given: str | T,
    arguments: Mapping[str, Any],
    *,
    example: str,
    error: type[PredbnError],
) -> T:
    """An object of a kind ("strategy") from an object, a name with arguments, or a text such as `example`."""
    if isinstance(given, base):
        if arguments:
            raise error(
                f"arguments {', '.join(arguments)} were given beside the {kind} object {given}; "
                "give them to the object itself"
            )
        return cast(T, given)
    if not isinstance(given, str):
        raise error(f"a {kind} is a name or a {base.__name__} object, not {type(given).__name__}")
    try:
        name, written = _parse(given)
    except (SyntaxError, ValueError):
        raise error(
            f"cannot read {kind} '{given}'; write a name, or a name with arguments such as '{example}'"
        ) from None
    cls, wanted = class_by_name(kind, by_name, name, error=error), {**written, **arguments}
    takes = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    unknown = [argument for argument in wanted if argument not in takes]
    if unknown:
        listed = f"takes {', '.join(takes)}" if takes else "takes no arguments"
        raise error(f"{kind} '{name}' has no argument '{unknown[0]}'; it {listed}")
    missing = [argument for argument, field in takes.items() if _is_required(field) and argument not in wanted]
    if missing:
        raise error(f"{kind} '{name}' needs its argument '{missing[0]}'; write it as in '{name}({missing[0]}=…)'")
    return cls(**wanted)


def class_by_name(kind: str, by_name: Mapping[str, type[T]], name: str, *, error: type[PredbnError]) -> type[T]:
    """The class known by a name."""
    if name not in by_name:
        raise error(f"unknown {kind} '{name}'{did_you_mean(name, by_name)}; known are {', '.join(sorted(by_name))}")
    return by_name[name]


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The hint for an error message, such as " (did you mean 'fog'?)"; empty if no known name is similar."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f" (did you mean '{near[0]}'?)" if near else ""


def _parse(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``"name(key=literal, …)"``."""
    if "(" not in text:
        return text.strip(), {}
    call = ast.parse(text.strip().replace("=inf", "=1e999"), mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise ValueError
    return call.func.id, {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}


def written(name: str, thing: Any) -> str:
    """The text that `find_by_name` reads as this dataclass."""
    arguments = ", ".join(f"{f.name}={getattr(thing, f.name)!r}" for f in fields(thing))
    return f"{name}({arguments})" if arguments else name


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
