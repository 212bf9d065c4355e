"""The options of `predbn evaluate` that the fields of a plan declare: one option for every field."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .help import VALUES, Command
from .options import split_values, usage_error

if TYPE_CHECKING:
    from predbn.evaluation import PlanField

_METAVARS = {str: "TEXT", int: "N"}


class PlanCommand(Command):
    """A command with an option for every field of a plan; `given_fields` reads them.

    The options are made when they are needed: importing the evaluation takes seconds.
    """

    @cached_property
    def _plan_options(self) -> list[Any]:
        from predbn.evaluation import plan_fields

        declared = typer.Typer(add_completion=False)
        declared.command()(_with_options(plan_fields()))
        return [option for option in typer.main.get_command(declared).params if option.name in plan_fields()]

    def get_params(self, ctx: Any) -> list[Any]:
        return [*super().get_params(ctx), *self._plan_options]

    def invoke(self, ctx: Any) -> Any:
        """Take the values of the plan out of the arguments of the command."""
        ctx.meta["plan"] = {option.name: ctx.params.pop(option.name) for option in self._plan_options}
        return super().invoke(ctx)


def given_fields(context: typer.Context) -> dict[str, Any]:
    """The fields of a plan that were given on the command line, with their values."""
    from predbn.evaluation import plan_fields

    values = {}
    for name, declared in plan_fields().items():
        given = context.meta["plan"][name]
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


def _with_options(declarations: dict[str, PlanField]) -> Any:
    """A function whose signature has these options. They are strings, which `given_fields` parses, or flags."""

    def function(**_: Any) -> None: ...

    parameters = []
    for name, declared in declarations.items():
        option, kind = option_of(name, declared), list[str] if declared.repeated else str
        information = typer.Option(
            option if declared.kind is not bool else f"{option}/--no-{option[2:]}",
            help=declared.help,
            metavar=None if name in VALUES else _METAVARS.get(declared.kind),
            show_default=_default(declared),
        )
        annotation = Annotated[bool | None if declared.kind is bool else kind | None, information]  # type: ignore[valid-type]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, keyword, default=None, annotation=annotation))
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    return function


def _default(declared: PlanField) -> str | bool:
    values = declared.default if declared.repeated else (declared.default,)
    return ", ".join(str(value) for value in values if value is not None and value is not False) or False
