"""Sets of options that several commands have: a parameter annotated with one becomes an option for each field."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

import typer
from rich.console import Console

from .options import (
    Device,
    Json,
    Mean,
    ModelReference,
    Quiet,
    Size,
    Std,
    Weights,
    parse_device_option,
    parse_preprocessing,
)
from .output import make_console

if TYPE_CHECKING:
    from predbn.models import Classifier


@dataclass(frozen=True)
class ModelOptions:
    """One model."""

    model: ModelReference
    weights: Weights = None
    mean: Mean = None
    std: Std = None
    size: Size = None
    device: Device = "auto"

    def described(self, *data: str | None) -> dict[str, Any]:
        """The arguments of `predbn.models.load`, for the data that is named."""
        return {
            "reference": self.model,
            "weights": self.weights,
            "preprocessing": parse_preprocessing(self.mean, self.std, self.size, data),
            "device": parse_device_option(self.device),
        }

    def load(self, *data: str | None) -> Classifier:
        from predbn.models import load

        return load(**self.described(*data))


@dataclass(frozen=True)
class Output:
    """Sentences for people, or one JSON object for programs."""

    quiet: Quiet = False
    as_json: Json = False

    @cached_property
    def console(self) -> Console:
        return make_console(quiet=self.quiet or self.as_json)

    def say(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, soft_wrap=True)

    def result(self, sentence: str, **record: Any) -> None:
        """Print what a command has done."""
        if self.as_json:
            typer.echo(json.dumps(record, default=str))
        self.say(sentence)


def expand_option_sets(function: Callable[..., None]) -> Callable[..., None]:
    """The function with one parameter for each field of its sets of options."""
    hints = get_type_hints(function, include_extras=True)
    sets: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    if not sets:
        return function

    @functools.wraps(function)
    def expanded(**values: Any) -> None:
        for name, options in sets.items():
            values[name] = options(**{field.name: values.pop(field.name) for field in fields(options)})
        function(**values)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in sets:
            parameters += inspect.signature(sets[name]).parameters.values()
            hints |= get_type_hints(sets[name], include_extras=True)
        else:
            parameters.append(parameter)
    keyword = inspect.Parameter.KEYWORD_ONLY
    by_keyword = [each.replace(kind=keyword, annotation=hints[each.name]) for each in parameters]
    expanded.__signature__ = inspect.Signature(by_keyword)  # type: ignore[attr-defined]
    expanded.__annotations__ = {each.name: each.annotation for each in by_keyword}
    return expanded
