"""Start a server for a model."""

from __future__ import annotations

import logging
import socket
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import uvicorn
from torch import Tensor, nn

from predbn.common import ServingError
from predbn.norm import Strategy, find_strategy

from .app import AnyService, create_app
from .calibration_file import load_calibration
from .guard import LOCAL
from .logs import log_as_json
from .model_spec import ModelSpec, spec_of
from .service import Service
from .settings import Settings

_MAX_CONNECTIONS = 1000
"""More connections are answered with 503: each takes a file descriptor."""

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

    calibration   a file of `save_calibration`; not needed if the model is calibrated already
    example       a batch of inputs, for a model that is not a `predbn.models.Classifier`
    labels        the names of the classes
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
    """Answer requests until a signal arrives, then finish the queue and save all streams."""
    settings = service.settings
    with open_socket(settings) as listening:
        host, port = listening.getsockname()[:2]
        _log.info(
            "serving",
            extra={
                "address": f"http://{f'[{host}]' if ':' in host else host}:{port}",
                "model": service.spec.name,
                "strategy": str(service.strategy),
                "device": str(service.device),
            },
        )
        if settings.host not in LOCAL and settings.token is None:
            _log.warning("anyone who can reach this machine can use the server: set --token")
        http_server(service).run(sockets=[listening])


def http_server(service: AnyService) -> uvicorn.Server:
    """The HTTP server of a service, not yet started."""
    config = uvicorn.Config(
        create_app(service),
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=int(service.settings.timeout) + 1,
    )
    return uvicorn.Server(config)


def open_socket(settings: Settings) -> socket.socket:
    """Listen on the address; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=_MAX_CONNECTIONS)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        raise ServingError(f"cannot listen on {settings.host}:{settings.port} ({reason}): change --port.") from None
