"""`predbn serve`: answer requests over HTTP, each with the statistics of its own stream."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from predbn.common import PredbnError

from .interrupts import if_interrupted
from .options import (
    MAX_COUNT,
    Address,
    Device,
    EngineName,
    Mean,
    ModelReference,
    Size,
    Std,
    Weights,
    parse_device_option,
    parse_preprocessing,
    refuse_ray_options,
    usage_error,
)
from .targets import check_folder


class LogLevel(str, Enum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def serve_command(
    model: ModelReference,
    strategy: Annotated[
        str, typer.Option(help="Where the statistics come from: auto_stream, batch, 'prior(N=16)', train and so on.")
    ] = "auto_stream",
    calibration: Annotated[
        Path | None, typer.Option(help="What clean data looks like to the model: a file of predbn calibrate.")
    ] = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    size: Size = None,
    labels: Annotated[Path | None, typer.Option(help="A text file with the name of each class on a line.")] = None,
    name: Annotated[str, typer.Option(help="What the model is called in addresses.")] = "model",
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8080,
    token: Annotated[
        str | None,
        typer.Option(envvar="PREDBN_TOKEN", help="Clients must send it as Authorization: Bearer TOKEN."),
    ] = None,
    max_wait: Annotated[float, typer.Option(min=0, help="Milliseconds that a request waits for others.")] = 5.0,
    max_batch: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Rows that are predicted at once.")] = 64,
    max_queue: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Rows that may wait.")] = 1024,
    max_rows: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Rows of a request.")] = 512,
    max_streams: Annotated[int, typer.Option(min=1, max=MAX_COUNT, help="Streams kept in memory.")] = 1000,
    state: Annotated[
        Path | None, typer.Option(help="Folder for the state of streams, which then outlives the server.")
    ] = None,
    checkpoint_every: Annotated[float, typer.Option(min=0.1, help="Seconds between checkpoints of streams.")] = 10.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a request to arrive, and to be predicted.")] = 30,
    engine: Annotated[
        EngineName,
        typer.Option(help="in-process, or ray for replicas on a Ray cluster (pip install predbn\\[serve-ray])."),
    ] = EngineName.in_process,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_COUNT, help="With --engine ray: processes that share the streams; 2 by default."),
    ] = None,
    address: Address = None,
    device: Device = "auto",
    log_level: Annotated[LogLevel, typer.Option(help="Logs are JSON on the standard error output.")] = LogLevel.info,
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

    if engine is EngineName.in_process:
        refuse_ray_options({"--replicas": replicas, "--address": address})
    ray_options: dict[str, Any] = {"replicas": replicas, "address": address}
    ray_options = {option: value for option, value in ray_options.items() if value is not None}
    if state is None and engine is EngineName.ray:
        raise typer.BadParameter(
            "replicas hand over streams in a folder: give one that all nodes share.", param_hint="--state"
        )
    with usage_error("--strategy"):
        find_strategy(strategy)
    settings: dict[str, Any] = {
        "name": name,
        "host": host,
        "port": port,
        "token": token,
        "max_wait": max_wait / 1000,
        "max_batch": max_batch,
        "max_queue": max_queue,
        "max_rows": max_rows,
        "max_streams": max_streams,
        "state": state,
        "checkpoint_every": checkpoint_every,
        "timeout": timeout,
    }
    with usage_error():
        Settings(**settings)
        class_names = None if labels is None else _read_labels(labels)
    if state is not None:
        check_folder(state)
    torch_device = parse_device_option(device)
    classifier = open_model(
        model, weights=weights, preprocessing=parse_preprocessing(mean, std, size), device=torch_device
    )
    kept = "their state was lost, because there is no --state folder" if state is None else f"their state is in {state}"
    with if_interrupted(f"all requests were answered; streams: {kept}."):
        serve(
            classifier,
            strategy,
            calibration=calibration,
            labels=class_names,
            log_level=log_level.value,
            engine=engine.value,
            **ray_options,
            **settings,
        )


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise PredbnError(f"{path} cannot be read as text ({error}): give a file with one name per line.") from None
