"""Start a server for a model."""

from __future__ import annotations

import logging
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from predbn.norm import Strategy, find_strategy

from .app import AnyService
from .calibration_file import load_calibration
from .http_server import address_of, allow_open_files, health_thread, http_server, open_socket
from .logs import log_as_json
from .model_spec import ModelSpec, spec_of
from .service import Service
from .settings import Settings

_log = logging.getLogger("predbn.serving")


def serve(
    model: nn.Module,
    strategy: str | Strategy = "auto_stream",
    *,
    calibration: str | Path | None = None,
    example: Tensor | None = None,
    labels: tuple[str, ...] | None = None,
    log_level: str = "info",
    engine: Literal["in-process", "ray"] = "in-process",
    replicas: int = 2,
    address: str = "auto",
    **settings: Any,
) -> None:
    """Serve a model over HTTP until Ctrl-C or SIGTERM.

    strategy      as `predbn.adapt` takes it
    calibration   a file of `save_calibration`; not needed if the model is calibrated already
    example       a batch of inputs, for a model that is not a `predbn.models.Classifier`
    labels        the names of the classes
    log_level     "debug", "info", "warning" or "error"
    engine        "in-process", or "ray" for replicas on the nodes of a Ray cluster
    replicas      number of replicas; each takes a core, or a GPU if the model is on one
    address       of the Ray cluster: "auto" (the one that this machine belongs to), "host:port", or "local" to start
                  one on this machine
    settings      fields of `Settings`: name, host, port, token, max_wait, max_batch, state, …
    """
    log_as_json(log_level)
    parts = service_parts(model, strategy, Settings(**settings), calibration, example, labels)
    if engine == "in-process":
        run_server(Service(*parts))
        return
    from .ray_service import RayService

    with closing(RayService(*parts, replicas=replicas, address=address, log_level=log_level)) as service:
        run_server(service)


def prepare_service(model: nn.Module, strategy: str | Strategy, settings: Settings, **options: Any) -> Service:
    """Adapt a model in place and make it a service; `options` are calibration, example and labels, as in `serve`."""
    return Service(*service_parts(model, strategy, settings, **options))


def service_parts(
    model: nn.Module,
    strategy: str | Strategy,
    settings: Settings,
    calibration: str | Path | None = None,
    example: Tensor | None = None,
    labels: tuple[str, ...] | None = None,
) -> tuple[nn.Module, Strategy, ModelSpec, Settings]:
    """The arguments of a `Service` or a `RayService`; loads the calibration of the model."""
    if calibration is not None:
        load_calibration(model, Path(calibration))
    spec = spec_of(model, settings.name, example=example, labels=labels)
    return model, find_strategy(strategy), spec, settings


def run_server(service: AnyService) -> None:
    """Answer requests until a signal arrives, then finish the queue and save all streams.

    Ctrl-C ends in a KeyboardInterrupt that says what became of requests and streams.
    """
    settings = service.settings
    allow_open_files(settings.max_connections)
    with ExitStack() as opened:
        listening = opened.enter_context(open_socket(settings.host, settings.port))
        extra = {"model": service.spec.name, "strategy": str(service.strategy), "device": str(service.device)}
        if settings.health_port is not None:
            health = opened.enter_context(open_socket(settings.host, settings.health_port))
            extra["health"] = address_of(health)
            opened.enter_context(health_thread(service, health))
        _log.info("serving", extra={"address": address_of(listening), **extra})
        if not settings.is_local and settings.token is None:
            _log.warning("anyone who can reach this machine can use the server: set --token")
        server = http_server(service)
        server.run(sockets=[listening])
    if signal.SIGINT in server.signals:
        requests = f"{server.refused} requests were not answered" if server.refused else "all requests were answered"
        raise KeyboardInterrupt(f"{requests}; streams: {_what_became_of_streams(service)}.")


def _what_became_of_streams(service: AnyService) -> str:
    if service.settings.state is None or not service.strategy.keeps_state:
        return "they were lost, because there is no --state folder"
    if service.is_saved:
        return f"their state is in {service.settings.state}"
    return f"saving them in {service.settings.state} has failed, see the log"
