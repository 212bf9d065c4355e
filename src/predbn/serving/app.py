"""The HTTP interface of a service: the Open Inference Protocol, pictures, streams, metrics, and a page."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from predbn import __version__

from .errors import RequestError
from .guard import BodyReader, check_access
from .pictures import picture_row
from .protocol import SESSION, encode_response, parse_request, stream_id
from .service import Service
from .work import Work

if TYPE_CHECKING:
    from .ray_service import RayService

AnyService: TypeAlias = "Service | RayService"

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
_MAX_CLASSES = 5
"""How many classes are named for a picture."""
_DECODERS = 2
"""How many pictures are decoded at once; each may take a hundred megabytes."""

_log = logging.getLogger("predbn.serving")
Handler = Callable[[Request], Awaitable[Response]]


class ServingApp:
    """The handlers, one per kind of request. A RequestError becomes its status and message."""

    def __init__(self, service: AnyService) -> None:
        self._service = service
        self._bodies = BodyReader(service.settings)
        self._decoders = asyncio.Semaphore(_DECODERS)
        self._page = (files("predbn.serving") / "page.html").read_bytes()

    def routes(self) -> list[Route]:
        """The handler of each path."""
        model = "/v2/models/{model}"
        routes: list[tuple[str, str, Handler]] = [
            ("GET", "/", self.page),
            ("GET", "/metrics", self.metrics),
            ("GET", "/v2", self.server_metadata),
            ("GET", "/v2/health/live", self.live),
            ("GET", "/v2/health/ready", self.ready),
            ("GET", "/v2/streams", self.streams),
            ("GET", "/v2/streams/{id:path}", self.stream),
            ("DELETE", "/v2/streams/{id:path}", self.forget),
        ]
        for prefix in (model, f"{model}/versions/{{version}}"):
            routes += [
                ("GET", prefix, self.model_metadata),
                ("GET", f"{prefix}/ready", self.model_ready),
                ("POST", f"{prefix}/infer", self.infer),
                ("POST", f"{prefix}/picture", self.picture),
            ]
        return [Route(path, self._answering(handler), methods=[method]) for method, path, handler in routes]

    def _answering(self, handler: Handler) -> Handler:
        """Check access and the name of the model, count the request, and turn errors into responses."""

        async def answer(request: Request) -> Response:
            try:
                check_access(request, self._service.settings)
                self._check_model(request.path_params)
                response = await handler(request)
            except RequestError as error:
                response = _failure(error)
                _log.info(
                    "request refused",
                    extra={"path": request.scope["path"], "status": error.status, "reason": str(error)},
                )
            except Exception as error:
                response = _failure(RequestError(500, "internal error: see the log of the server."))
                _log.error("request failed", extra={"path": request.scope["path"]}, exc_info=error)
            self._service.metrics.requests.labels(str(response.status_code)).inc()
            return response

        return answer

    def _check_model(self, parameters: dict[str, Any]) -> None:
        name = self._service.spec.name
        if parameters.get("model", name) != name:
            raise RequestError(404, f"unknown model {parameters['model'][:40]!r}: this server has '{name}'.")
        if parameters.get("version", "1") != "1":
            raise RequestError(404, f"model '{name}' has only version 1.")

    async def infer(self, request: Request) -> Response:
        service = self._service
        async with self._bodies.read(request) as body:
            parsed = parse_request(body, request.headers, service.spec, service.settings.max_rows)
            prediction = await service.infer(parsed.work)
            content, headers = encode_response(parsed, prediction, service.spec)
        return Response(content, headers=headers)

    async def picture(self, request: Request) -> Response:
        """The most probable classes of one picture. Its stream is `?stream=…` or the header x-session-id."""
        service = self._service
        stream = stream_id(request.query_params, request.headers.get(SESSION))
        async with self._bodies.read(request) as body:
            async with self._decoders:
                row = await asyncio.to_thread(picture_row, body, service.spec, service.settings.max_pixels)
            prediction = await service.infer(Work(row, stream))
        probabilities = prediction.probabilities[0]
        labels = service.spec.labels
        classes = [
            {"class": int(k), "probability": float(probabilities[k]), **({"label": labels[k]} if labels else {})}
            for k in probabilities.argsort()[::-1][:_MAX_CLASSES]
        ]
        return JSONResponse({"model_name": service.spec.name, "stream": stream, "classes": classes})

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        is_ready = self._service.is_ready
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def model_ready(self, request: Request) -> Response:
        return JSONResponse({"name": self._service.spec.name, "ready": self._service.is_ready})

    async def server_metadata(self, request: Request) -> Response:
        return JSONResponse(
            {"name": "predbn", "version": __version__, "extensions": ["binary_tensor_data", "sequence", "parameters"]}
        )

    async def model_metadata(self, request: Request) -> Response:
        return JSONResponse(self._service.spec.metadata())

    async def streams(self, request: Request) -> Response:
        """The streams used last, and how many there are in memory."""
        return JSONResponse(await self._service.overview())

    async def stream(self, request: Request) -> Response:
        details = await self._service.details(request.path_params["id"])
        if details is None:
            raise _unknown_stream(request)
        return JSONResponse(details)

    async def forget(self, request: Request) -> Response:
        if not await self._service.forget(request.path_params["id"]):
            raise _unknown_stream(request)
        return Response(status_code=204)

    async def metrics(self, request: Request) -> Response:
        return Response(await self._service.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def page(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html", headers={"content-security-policy": PAGE_POLICY})


def create_app(service: AnyService) -> Starlette:
    """The ASGI application of a service, which is started and stopped with it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    return Starlette(
        routes=list(ServingApp(service).routes()),
        lifespan=lifespan,
        exception_handlers={HTTPException: _unknown_path},
    )


async def _unknown_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:80]
    return _failure(RequestError(error.status_code, f"{request.method} {path} is not an endpoint of this server."))


def _unknown_stream(request: Request) -> RequestError:
    return RequestError(404, f"unknown stream {request.path_params['id'][:40]!r}.")


def _failure(error: RequestError) -> Response:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(json.dumps({"error": str(error)}), error.status, headers, "application/json")
