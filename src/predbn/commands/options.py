"""Options that several commands have, and what is made of their values.

A wrong value is a usage error: `typer.BadParameter`, which exits with code 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from predbn.common import PredbnError, parse_device

if TYPE_CHECKING:
    import torch

    from predbn.evaluation import Engine
    from predbn.models import Preprocessing

MAX_SEED = 2**63 - 1
"""The largest seed: tables store it as a 64-bit integer."""

MAX_COUNT = 2**31 - 1
"""The largest number of examples that an option takes."""

Corruption = Annotated[str | None, typer.Option("--shift", help="Corrupt the data first, with fog for example.")]
Severity = Annotated[int, typer.Option(min=1, max=5, help="Severity of the corruption.")]
Seed = Annotated[int, typer.Option(min=-MAX_SEED, max=MAX_SEED, help="Random seed.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead, for programs.")]
Log = Annotated[
    str | None,
    typer.Option(help="Also log the results: tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 and so on, or auto for the GPU if there is one.")]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        help="A module of yours to import first, which registers strategies, corruptions or other things. The module "
        "that --model names is imported first too.",
    ),
]


EngineName = Literal["in-process", "ray"]
Address = Annotated[
    str,
    typer.Option(
        help="The Ray cluster: auto (the cluster that this machine belongs to), host:port, or local to start one on "
        "this machine only."
    ),
]


@contextmanager
def usage_error(option: str | None = None) -> Iterator[None]:
    """Turn an error of the package into a usage error. For checks of option values only, not for the work itself."""
    try:
        yield
    except PredbnError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def refuse_options(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Make it a usage error if one of these options was given, because it would have no effect."""
    for parameter in context.command.get_params(context):
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP"):
            raise typer.BadParameter(why, param_hint=parameter.opts[0])


def refuse_without(context: typer.Context, needed: str, names: Sequence[str]) -> None:
    """The same for options that go with another one, which was not given."""
    refuse_options(context, names, f"it goes with {needed}: add that, or leave it out.")


def split_values(given: Sequence[str] | None) -> list[str]:
    """The values of an option that may be repeated, or given once with commas; commas in brackets do not count."""
    return [part for text in given or () for part in re.split(r",\s*(?![^(\[]*[)\]])", text) if part]


def parse_pairs(given: Sequence[str] | None, option: str, example: str) -> list[tuple[str, str]]:
    """NAME=VALUE of an option that may be repeated, as pairs."""
    pairs = []
    for text in given or ():
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE: write it as in {example}.", param_hint=option)
        pairs.append((name, value))
    return pairs


def import_modules(modules: Sequence[str] | None, models: Sequence[str] = ()) -> None:
    """Import what --import names, and the module of each package.module:function, before names are looked up."""
    from predbn.common import import_module

    for module in modules or ():
        with usage_error("--import"):
            import_module(module)
    for reference in models:
        kind, _, name = reference.partition(":")
        if name and kind not in ("zoo", "timm", "lite", "file"):
            with suppress(PredbnError):  # the error that loading the model gives says more
                import_module(kind)


def parse_device_option(name: str) -> torch.device:
    with usage_error("--device"):
        return parse_device(name)


def parse_preprocessing(
    mean: str | None, std: str | None, size: str | None, data: Sequence[str | None] = ()
) -> Preprocessing | None:
    """The preprocessing that --mean, --std and --size describe; pixels are scaled to 0 to 1 first.

    What a loader among `data` yields is prepared already; then all data must be from loaders.
    """
    from predbn.data import example_of, is_loader
    from predbn.models import Preprocessing

    named = [reference for reference in data if reference is not None]
    if loaders := [reference for reference in named if is_loader(reference)]:
        if len(loaders) < len(named) or (mean, std, size) != (None, None, None):
            raise typer.BadParameter(
                f"{loaders[0]} yields what the network takes: name loaders for all data, and leave out --mean, --std "
                "and --size."
            )
        with usage_error():
            channels, *sides = example_of(loaders[0]).shape
        return Preprocessing((sides[0], sides[1]), (0.0,) * channels, (1.0,) * channels, floats=True)
    if mean is None and std is None and size is None:
        return None
    if size is None:
        raise typer.BadParameter("give the size of the images too, as in --size 224.", param_hint="--size")
    height, _, width = size.partition("x")
    try:
        height_and_width = int(height), int(width or height)
    except ValueError:
        raise typer.BadParameter(f"{size!r} is not a size: write 224 or 224x192.", param_hint="--size") from None
    means, stds = _parse_channels(mean or "0", "--mean"), _parse_channels(std or "1", "--std")
    if max(means) > 1 or min(stds) <= 0:
        raise typer.BadParameter(
            "means must be between 0 and 1 and deviations above 0, as in --mean 0.485,0.456,0.406 "
            "--std 0.229,0.224,0.225.",
            param_hint="--mean",
        )
    channels = max(len(means), len(stds))
    if {len(means), len(stds)} - {1, channels}:
        raise typer.BadParameter(
            f"there are {len(means)} means and {len(stds)} deviations: give one of each per channel.",
            param_hint="--std",
        )
    scaled = [tuple(255 * value for value in values * (channels // len(values))) for values in (means, stds)]
    return Preprocessing(height_and_width, scaled[0], scaled[1])


def _parse_channels(text: str, option: str) -> tuple[float, ...]:
    """One number for all channels, or one for each."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not one number for each channel, as in 0.5 or 0.485,0.456,0.406.", param_hint=option
        ) from None


def in_process_engine(device: str) -> Engine:
    """The engine that computes in this process, on the device that --device names."""
    from predbn.evaluation import InProcess

    with usage_error("--device"):
        return InProcess(device)
