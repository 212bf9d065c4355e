"""Sets of options that several commands have: a parameter annotated with one becomes an option for each field."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from .console import make_console
from .options import (
    Address,
    Device,
    EngineName,
    Json,
    Quiet,
    in_process_engine,
    parse_device_option,
    parse_preprocessing,
    refuse_without,
)

if TYPE_CHECKING:
    from predbn.evaluation import Engine
    from predbn.models import Classifier, Preprocessing


@dataclass(frozen=True, kw_only=True)
class PreprocessingOptions:
    """How pictures are prepared for a model."""

    mean: Annotated[
        str | None,
        typer.Option(
            help="Preprocessing of your own model: mean of each channel on the scale from 0 to 1, such as "
            "0.485,0.456,0.406."
        ),
    ] = None
    std: Annotated[str | None, typer.Option(help="Standard deviation of each channel, on the same scale.")] = None
    size: Annotated[
        str | None, typer.Option(help="Height and width of the images that the model takes: 224, or 224x192.")
    ] = None

    def preprocessing(self, *data: str | None) -> Preprocessing | None:
        """What the options describe, for the data that is named; None if none was given."""
        return parse_preprocessing(self.mean, self.std, self.size, data)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(PreprocessingOptions):
    """One model."""

    model: Annotated[
        str,
        typer.Option(
            help="zoo:NAME, timm:NAME, hf-hub:NAME, torchvision:NAME, file:PATH#ARCHITECTURE or "
            "package.module:function.",
        ),
    ]
    weights: Annotated[Path | None, typer.Option(help="State dict for a function of your own.")] = None
    device: Device = "auto"

    def described(self, *data: str | None) -> dict[str, Any]:
        """The arguments of `predbn.models.load`, for the data that is named."""
        return {
            "reference": self.model,
            "weights": self.weights,
            "preprocessing": self.preprocessing(*data),
            "device": parse_device_option(self.device),
        }

    def load(self, *data: str | None) -> Classifier:
        from predbn.models import load

        return load(**self.described(*data))


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where an evaluation is computed."""

    device: Device = "auto"
    engine: Annotated[
        EngineName,
        typer.Option(
            help="in-process, or ray for more than one machine (pip install predbn[ray]). Every node needs the same "
            "version of predbn, either installed or in Ray's runtime_env, as with: ray job submit --working-dir . -- "
            "predbn evaluate --engine ray …",
        ),
    ] = "in-process"
    address: Address = "auto"
    cpus_per_worker: Annotated[
        int | None,
        typer.Option(help="Cores per Ray worker; by default a whole node, or with GPUs an equal part of one."),
    ] = None
    gpus_per_worker: Annotated[
        float, typer.Option(help="GPUs per Ray worker with --device cuda; 0.5 to share one.")
    ] = 1

    def check(self, context: typer.Context) -> None:
        """Refuse options that would have no effect."""
        if self.engine == "in-process":
            refuse_without(context, "--engine ray", ["address", "cpus_per_worker", "gpus_per_worker"])

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """The engine that the options describe; it is closed at the end of the block."""
        if self.engine == "in-process":
            yield in_process_engine(self.device)
            return
        if self.device not in ("cpu", "cuda", "auto"):
            raise typer.BadParameter(
                f"{self.device!r} does not work with Ray: use cpu, cuda or auto.", param_hint="--device"
            )
        from predbn.evaluation import RayEngine

        per_worker = {"cpus_per_worker": self.cpus_per_worker, "gpus_per_worker": self.gpus_per_worker}
        with RayEngine(self.address, device=self.device, **per_worker) as engine:  # type: ignore[arg-type]
            yield engine


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
