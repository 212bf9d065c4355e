"""Options that follow from the fields of a dataclass: of a plan, and of the recipe of a training.

They are made when they are needed, because importing the evaluation or the training takes seconds.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from .help import VALUES, Command
from .options import split_values, usage_error

if TYPE_CHECKING:
    from predbn.evaluation import PlanField

_METAVARS = {str: "TEXT", int: "N", float: "NUMBER"}

_RECIPE = {
    "epochs": "Epochs; the schedule is scaled with them.",
    "patience": "Stop when the validation loss has not fallen for so many epochs.",
    "batch_size": "Examples per step, on all GPUs together.",
    "learning_rate": "Learning rate.",
    "momentum": "Adam's β₁, or the momentum of SGD.",
    "adam_eps": "Adam's ε.",
    "weight_decay": "Weight decay of filters and matrices.",
    "decoupled": "Decoupled weight decay in place of L2.",
    "schedule": "How the rate falls: paper or cosine.",
    "warm_up": "Epochs in which the rate rises from 0.",
    "padding": "Pixels around an image before cropping.",
    "border": "What is in them: zero (black), edge, or reflect (recommended).",
    "norm_momentum": "How far a step moves the running statistics; use more if there are few steps.",
    "size": "Side of the images.",
    "precision": "Matrix products on a GPU: fp32, tf32 or bf16.",
}
"""The fields of recipes that are options, and their help."""


class FieldsCommand(Command):
    """A command with an option for every field of a dataclass; `context.meta["fields"]` has their values."""

    def declare(self) -> list[inspect.Parameter]:
        """The options as parameters of a function."""
        raise NotImplementedError

    @cached_property
    def _field_options(self) -> list[Any]:
        def function(**_: Any) -> None: ...

        parameters = self.declare()
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        declared = typer.Typer(add_completion=False)
        declared.command()(function)
        return [option for option in typer.main.get_command(declared).params if option.name in function.__annotations__]

    def get_params(self, ctx: Any) -> list[Any]:
        return [*super().get_params(ctx), *self._field_options]

    def invoke(self, ctx: Any) -> Any:
        """Take the values of the fields out of the arguments of the function."""
        ctx.meta["fields"] = {option.name: ctx.params.pop(option.name) for option in self._field_options}
        return super().invoke(ctx)


class PlanCommand(FieldsCommand):
    """A command with an option for every field of a plan, whose values are strings for `given_fields`, or flags."""

    def declare(self) -> list[inspect.Parameter]:
        from predbn.evaluation import plan_fields

        parameters = []
        for name, declared in plan_fields().items():
            kind = bool if declared.kind is bool else list[str] if declared.repeated else str
            values = declared.default if declared.repeated else (declared.default,)
            default = ", ".join(str(value) for value in values if value is not None and value is not False)
            metavar = None if name in VALUES else _METAVARS.get(declared.kind)
            parameters.append(_parameter(name, option_of(name, declared), kind, declared.help, default, metavar))
        return parameters


def recipe_command(recipe: str, default: str = "") -> type[Command]:
    """A command with an option for every field of a recipe of `predbn.training`.

    `default` is what help says in place of the defaults of the class.
    """

    class RecipeCommand(FieldsCommand):
        def declare(self) -> list[inspect.Parameter]:
            from predbn import training

            recipe_class = getattr(training, recipe)
            hints, declared = get_type_hints(recipe_class), {field.name: field for field in fields(recipe_class)}
            parameters = []
            for name in filter(declared.__contains__, _RECIPE):
                (kind,), value = _kinds(hints[name]), declared[name].default
                shown, option = default or ("" if value is None else str(value)), f"--{name.replace('_', '-')}"
                parameters.append(_parameter(name, option, kind, _RECIPE[name], shown, _METAVARS.get(kind)))
            return parameters

    return RecipeCommand


def given_recipe(context: typer.Context) -> dict[str, Any]:
    """The fields of a recipe that were given on the command line, with their values."""
    return {name: value for name, value in context.meta["fields"].items() if value is not None}


def given_fields(context: typer.Context) -> dict[str, Any]:
    """The fields of a plan that were given on the command line, with their values."""
    from predbn.evaluation import plan_fields

    values = {}
    for name, declared in plan_fields().items():
        given = context.meta["fields"][name]
        if given is None or (declared.repeated and not given):
            continue
        if declared.repeated:
            given = [declared.parse(text) for text in split_values(given)]
        elif declared.kind is not bool:
            given = declared.parse(given)
        with usage_error(option_of(name, declared)):
            values[name] = declared.check(name, given)
    return values


def option_of(name: str, declared: PlanField) -> str:
    return f"--{(declared.option or name).replace('_', '-')}"


def _kinds(hint: Any) -> set[type]:
    """The types of the values of a field: those of a union without None, and of the choices of a Literal."""
    if isinstance(hint, type):
        return {hint} - {NoneType}
    return set().union(*({type(part)} if isinstance(part, str) else _kinds(part) for part in get_args(hint)))


def _parameter(name: str, option: str, kind: Any, help_text: str, default: str, metavar: str | None) -> Any:
    """An option that is None if it is not given."""
    spelled = f"{option}/--no-{option[2:]}" if kind is bool else option
    information = typer.Option(spelled, help=help_text, metavar=metavar, show_default=default or False)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=None, annotation=Annotated[kind | None, information])
