"""`predbn serve`: answer requests over HTTP, each with the statistics of its own stream."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

import typer

from predbn.common import PredbnError, parse_toml

from .interrupts import interrupt
from .option_sets import ModelOptions
from .options import (
    MAX_COUNT,
    Address,
    EngineName,
    refuse_without,
    usage_error,
)
from .targets import check_folder

TOKEN = "PREDBN_TOKEN"  # noqa: S105  # the name of the variable
MIB = 1 << 20


def _read_config(context: typer.Context, path: Path | None) -> None:
    """Take the values of the other options from a file; the command line goes before it."""
    if path is None:
        return
    try:
        entries = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} cannot be read as TOML ({error}).") from None
    options = {name.replace("-", "_"): value for name, value in entries.items()}
    known = {parameter.name for parameter in context.command.params}
    if unknown := sorted(options.keys() - known):
        raise typer.BadParameter(f"{path} has the unknown option '{unknown[0]}': see predbn serve --help.")
    context.default_map = options


def serve_command(
    context: typer.Context,
    model: ModelOptions,
    strategy: Annotated[
        str, typer.Option(help="Where the statistics come from: auto_stream, batch, 'prior(N=16)', train and so on.")
    ] = "auto_stream",
    calibration: Annotated[
        Path | None, typer.Option(help="What clean data looks like to the model: a file of predbn calibrate.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(help="A text file with the name of each class on a line.")] = None,
    name: Annotated[str, typer.Option(help="What the model is called in addresses.")] = "model",
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8080,
    token: Annotated[
        str | None, typer.Option(envvar=TOKEN, help="Clients must send it as Authorization: Bearer TOKEN.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Without a token, allow everyone who reaches this machine.")
    ] = False,
    health_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="A second port for health checks and metrics, with its own thread."),
    ] = None,
    max_wait: Annotated[float, typer.Option(min=0, help="Milliseconds that a batch waits for requests.")] = 5.0,
    max_batch: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Rows that are predicted at once.")] = 64,
    max_queue: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Rows that may wait or be predicted.")] = 2048,
    max_rows: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Rows of a request.")] = 512,
    max_body: Annotated[float, typer.Option(help="MiB of a request.")] = 64,
    max_memory: Annotated[float, typer.Option(help="MiB of all requests.")] = 512,
    max_pixels: Annotated[float, typer.Option(help="Megapixels of a picture.")] = 32,
    max_connections: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Open connections.")] = 2000,
    keep_alive: Annotated[int, typer.Option(min=1, help="Seconds after which an idle connection is closed.")] = 5,
    max_streams: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Streams kept in memory.")] = 1000,
    state: Annotated[
        Path | None, typer.Option(help="Folder for the state of streams, which then outlives the server.")
    ] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0.1, help="Seconds between checkpoints of streams.")] = 10.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a request to arrive, and to be predicted.")] = 30,
    shutdown_delay: Annotated[
        float, typer.Option(min=0, help="Seconds after SIGTERM in which the server goes on, but is not ready.")
    ] = 0.0,
    engine: Annotated[
        EngineName,
        typer.Option(help="in-process, or ray for replicas on a Ray cluster (pip install predbn[serve-ray])."),
    ] = "in-process",
    replicas: Annotated[
        int, typer.Option(min=1, max=MAX_COUNT, help="With --engine ray: processes that share the streams.")
    ] = 2,
    address: Address = "auto",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        typer.Option(help="Logs are JSON on the standard error output."),
    ] = "info",
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
    stream_metrics: Annotated[
        bool, typer.Option("--stream-metrics/--no-stream-metrics", help="Whether metrics name streams.")
    ] = True,
    config: Annotated[
        Path | None,
        typer.Option(
            callback=_read_config, is_eager=True, help="A TOML file with values of these options, as port = 80."
        ),
    ] = None,
) -> None:
    """Answer requests over HTTP (Open Inference Protocol v2), each with the statistics of its own stream.

    Examples:

      predbn serve --model zoo:resnet20-cifar10/batch/0 --strategy batch
      predbn serve --model timm:resnet50.tv_in1k --calibration c.safetensors \\
          --state streams --port 8080
      predbn serve --model zoo:resnet20-cifar10/batch/0 --strategy ema \\
          --state streams --engine ray --replicas 4
      curl --data-binary @cat.jpg \\
          'localhost:8080/v2/models/model/picture?stream=camera-7'
    """
    from predbn.models import open_model
    from predbn.norm import find_strategy
    from predbn.serving import Settings, serve

    if os.environ.get(TOKEN) == "":  # click takes it as not set
        raise typer.BadParameter(f"{TOKEN} is empty: give it a value, or unset it.", param_hint="--token")
    if engine == "in-process":
        refuse_without(context, "--engine ray", ["replicas", "address"])
    elif state is None:
        raise typer.BadParameter(
            "replicas hand over streams in a folder: give one that all nodes share.", param_hint="--state"
        )
    with usage_error("--strategy"):
        find_strategy(strategy)
    given = context.params
    settings = {field.name: given[field.name] for field in fields(Settings) if field.name in given}
    settings |= {option: int(given[option] * MIB) for option in ("max_body", "max_memory", "max_pixels")}
    settings["max_wait"] = max_wait / 1000
    with usage_error():
        Settings(**settings)
        class_names = None if labels is None else _read_labels(labels)
    if state is not None:
        check_folder(state)
    classifier = open_model(**model.described())
    try:
        serve(
            classifier,
            strategy,
            calibration=calibration,
            labels=class_names,
            log_level=log_level,
            engine=engine,
            replicas=replicas,
            address=address,
            **settings,
        )
    except KeyboardInterrupt as error:
        if not error.args:
            raise
        interrupt(str(error))


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise PredbnError(f"{path} cannot be read as text ({error}): give a file with one name per line.") from None
