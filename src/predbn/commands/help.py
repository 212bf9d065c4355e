"""The help of every command: a sentence, examples, then its options in groups. `reference.py` writes it as pages."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from .option_sets import expand_option_sets

GROUPS = {
    "Model": "model weights mean std size labels name plan modules",
    "Data": "data source reference unlabelled class_map clean validation images root on_sample cache which where",
    "Shifts": "corruption only shifts severity severities orders constants seed seeds synthetic",
    "Strategies and methods": "strategy strategies methods calibration convolutions robust layers batch_size "
    "batch_sizes precision one_pass",
    "Measurement": "bins diagram_bins hits metric",
    "Streams": "state max_streams checkpoint_every max_wait max_batch",
    "Network": "host port token public health_port keep_alive timeout shutdown_delay",
    "Limits": "max_queue max_rows max_body max_memory max_pixels max_connections",
    "Output": "out report log figures suffix results log_level access_log stream_metrics quiet as_json",
    "Engine": "device engine replicas address cpus_per_worker gpus_per_worker workers at_once resume",
}
"""The groups of options in the order in which help shows them, each with its parameters; others are "Options"."""

_OF_PREDICTION = ("Options", "Shifts", "Strategies and methods", "Streams")
"""Groups whose options belong together where a network is trained."""

COMMANDS = {
    "Start": "demo evaluate predict doctor",
    "Change a model": "calibrate recompute onnx serve",
    "Data and networks": "data corrupt zoo train",
    "Results": "results paper",
}
_KINDS = {str: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}
VALUES = dict.fromkeys(("data", "reference", "clean", "validation"), "DATA") | {
    "model": "MODEL",
    "class_map": "FILE",
    "weights": "FILE",
    "out": "PATH",
    "modules": "MODULE",
}
"""What the values of some parameters are called, where their type says less."""
_MAX_WIDTH, _LEFT = 110, 26
_UNBOUNDED = 2**31 - 1


@dataclass(frozen=True)
class Help:
    """The help of a command: its first sentence, what else it says, examples, and entries (name, text) in groups."""

    usage: str
    summary: str
    details: list[str]
    examples: str
    groups: dict[str, list[tuple[str, str]]]


class Command(TyperCommand):
    """A command whose help looks like that of all others."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        print_help(help_of(self, ctx))


class Group(TyperGroup):
    """The same for a group of commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        print_help(help_of(self, ctx))


class App(typer.Typer):
    """An application, or a part of one, whose commands have this help."""

    def __init__(self, help: str, cls: type[Group] = Group) -> None:
        super().__init__(cls=cls, help=help, no_args_is_help=True, pretty_exceptions_enable=False)

    def command(self, *arguments: Any, **options: Any) -> Callable[[Any], Any]:
        declare = super().command(*arguments, **{"cls": Command, **options})
        return lambda function: declare(expand_option_sets(function))


def help_of(command: Any, context: Any) -> Help:
    """The help of a command or a group, from its function and its docstring."""
    text, _, examples = inspect.cleandoc(command.help or "").partition("\n\nExample")
    summary, *details = (" ".join(part.split()) for part in text.split("\n\n"))
    declared = get_type_hints(command.callback, include_extras=True) if command.callback else {}
    is_training = context.command_path.split()[-2:-1] == ["train"]
    groups: dict[str, list[tuple[str, str]]] = {}
    names = " ".join(GROUPS.values()).split()
    rank = {name: number for number, name in enumerate(names)}
    for parameter in sorted(command.get_params(context), key=lambda each: rank.get(each.name, -1)):
        if parameter.name != "help":
            group = "Arguments" if parameter.param_type_name == "argument" else _group_of(GROUPS, parameter.name)
            if is_training and group in _OF_PREDICTION:
                group = "Training"
            groups.setdefault(group, []).append(_entry(parameter, declared.get(parameter.name)))
    for name, subcommand in getattr(command, "commands", {}).items():
        entry = (name, help_of(subcommand, context).summary)
        groups.setdefault(_group_of(COMMANDS, name, "Commands"), []).append(entry)
    order = ["Arguments", *COMMANDS, "Commands", "Options", "Training", *GROUPS]
    needed = [name for name, _ in groups.get("Arguments", [])]
    pieces = ["[OPTIONS]", *needed, *(["COMMAND ..."] if hasattr(command, "commands") else [])]
    usage = " ".join([context.command_path.replace("python -m predbn.cli", "predbn"), *pieces])
    return Help(
        usage,
        summary,
        details,
        inspect.cleandoc(examples.partition(":")[2]),
        {group: groups[group] for group in order if group in groups},
    )


def _group_of(groups: dict[str, str], name: str, otherwise: str = "Options") -> str:
    return next((group for group, names in groups.items() if name in names.split()), otherwise)


def _entry(parameter: Any, annotation: Any) -> tuple[str, str]:
    """An option or an argument as help shows it: its name with the kind of value, and its text."""
    information = next((part for part in get_args(annotation) if hasattr(part, "min")), None)
    is_flag = getattr(parameter, "is_flag", False)
    kind = parameter.metavar or ("" if is_flag else VALUES.get(parameter.name, "|".join(_kinds(annotation))))
    if parameter.param_type_name == "argument":
        name, kind, default = parameter.name.upper(), "", None
    else:
        name, default = "/".join([*parameter.opts, *parameter.secondary_opts]), parameter.default
    shown = parameter.show_default if isinstance(parameter.show_default, str) else default
    notes = [
        {("option", True): "required", ("argument", False): "optional"}.get(
            (parameter.param_type_name, parameter.required), ""
        ),
        "" if information is None else _range(information.min, information.max),
        "may be repeated" if getattr(parameter, "multiple", False) else "",
        "" if shown in (None, "", (), []) or (is_flag and shown is False) else f"default: {_default(shown)}",
    ]
    note = "; ".join(filter(None, notes))
    return " ".join(filter(None, [name, kind])), f"{parameter.help or ''}{f' [{note}]' if note else ''}"


def _kinds(annotation: Any) -> Iterator[str]:
    """What the values of an annotation are called."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif annotation in _KINDS:
        yield _KINDS[annotation]
    else:
        for part in get_args(annotation):
            yield from _kinds(part)


def _default(value: Any) -> str:
    if value is True:
        return "on"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _range(low: float | None, high: float | None) -> str:
    """The bounds of a number in words; those that only keep it storable are left out."""
    low = None if low is None or low <= -_UNBOUNDED else low
    high = None if high is None or high >= _UNBOUNDED else high
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return f"at least {low:g}" if low is not None else f"at most {high:g}" if high is not None else ""


def print_help(shown: Help) -> None:
    """Print help in the width of the terminal."""
    console = Console(highlight=False)
    console.width = min(console.width, _MAX_WIDTH)
    console.print(Text.assemble(("Usage: ", "bold"), shown.usage), "", Text(shown.summary), sep="\n")
    if shown.examples:
        console.print("\n[bold]Examples[/bold]")
        for line in shown.examples.splitlines():
            console.print(Text(f"  {line}", style="cyan"), soft_wrap=True)
    for paragraph in shown.details:
        console.print("", Text(paragraph), sep="\n")
    for group, entries in shown.groups.items():
        console.print(f"\n[bold]{group}[/bold]")
        left = min(_LEFT, max(len(name) for name, _ in entries)) + 4
        for name, text in entries:
            lines = textwrap.wrap(text, console.width - left, break_long_words=False, break_on_hyphens=False)
            beside = lines.pop(0) if lines and len(name) <= left - 4 else ""
            console.print(Text.assemble((f"  {name}".ljust(left), "cyan"), beside), soft_wrap=True)
            for line in lines:
                console.print(Text(" " * left + line), soft_wrap=True)
