"""Objects by name: the spec ``"prior(N=16)"`` stands for the dataclass registered as "prior", with that argument.

Strategies and methods are looked up this way.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, cast

from .errors import PredbnError
from .plugins import load_plugins

T = TypeVar("T")


def find_by_name(
    kind: str,
    base: type[Any],
    classes: Mapping[str, type[T]],
    spec: str | T,
    arguments: Mapping[str, Any],
    *,
    example: str,
    error: type[PredbnError],
) -> T:
    """Make the object that a spec stands for; an object of the class `base` is returned as it is.

    `kind` (such as "strategy") and `example` are for error messages. `arguments` override those of the spec.
    """
    if isinstance(spec, base):
        if arguments:
            raise error(
                f"arguments {', '.join(arguments)} were given beside the {kind} object {spec}; "
                "pass them when you make the object"
            )
        return cast(T, spec)
    if not isinstance(spec, str):
        raise error(f"a {kind} is a name or a {base.__name__} object, not {type(spec).__name__}")
    try:
        name, spec_arguments = _parse_spec(spec)
    except (SyntaxError, ValueError):
        hint = f"write a name, or a name with arguments such as '{example}'"
        raise error(f"cannot read {kind} '{spec}'; {hint}") from None
    cls = look_up(kind, classes, name, error=error)
    values = {**spec_arguments, **arguments}
    parameters = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    unknown = [argument for argument in values if argument not in parameters]
    if unknown:
        accepted = f"takes {', '.join(parameters)}" if parameters else "takes no arguments"
        raise error(f"{kind} '{name}' has no argument '{unknown[0]}'; it {accepted}")
    missing = [p for p, field in parameters.items() if _is_required(field) and p not in values]
    if missing:
        raise error(f"{kind} '{name}' needs its argument '{missing[0]}'; write it as in '{name}({missing[0]}=…)'")
    return cls(**values)


def look_up(kind: str, known: Mapping[str, T], name: str, *, error: type[PredbnError]) -> T:
    """What is registered under a name, by this package or by one that plugs itself in."""
    if name not in known:
        load_plugins()
    if name not in known:
        raise error(f"unknown {kind} '{name}'{did_you_mean(name, known)}; choose one of {', '.join(sorted(known))}")
    return known[name]


def did_you_mean(name: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The hint for an error message, such as " (did you mean 'fog'?)"; empty if no choice is similar."""
    closest = difflib.get_close_matches(name, list(choices), n=1, cutoff=cutoff)
    return f" (did you mean '{closest[0]}'?)" if closest else ""


def format_spec(name: str, instance: Any) -> str:
    """The spec of a dataclass instance, which `find_by_name` turns into an equal instance.

    An argument that is None by default and has not been given is left out.
    """
    values = [(field, getattr(instance, field.name)) for field in fields(instance)]
    shown = [(field, value) for field, value in values if not (value is None and field.default is None)]
    arguments = ", ".join(f"{field.name}={value!r}" for field, value in shown)
    return f"{name}({arguments})" if arguments else name


def short_spec(name: str, instance: Any) -> str:
    """The shortest spec of a dataclass instance: only the arguments whose values are not the default.

    "auto" instead of "auto(calibrated=True, passes=1)". `find_by_name` turns it into an equal instance too.
    """
    given = {field.name: getattr(instance, field.name) for field in fields(instance)}
    required = [field.name for field in fields(instance) if _is_required(field)]
    default = type(instance)(**{argument: given[argument] for argument in required})
    differing = {
        field.name: given[field.name]
        for field in fields(instance)
        if field.name in required
        or (given[field.name] != getattr(default, field.name) and given[field.name] != field.default)
    }
    arguments = ", ".join(f"{argument}={value!r}" for argument, value in differing.items())
    return f"{name}({arguments})" if arguments else name


def _parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split ``"name(key=literal, …)"`` into name and arguments. 1e999 is how a Python literal writes infinity."""
    if "(" not in spec:
        return spec.strip(), {}
    call = ast.parse(spec.strip().replace("=inf", "=1e999"), mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise ValueError
    names = [keyword.arg for keyword in call.keywords]
    if None in names or len(set(names)) < len(names):  # "prior(**{'N': 3})" and "prior(N=3, N=4)"
        raise ValueError
    return call.func.id, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING
