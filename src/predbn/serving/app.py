"""The HTTP interface of a service: the Open Inference Protocol, pictures, streams, metrics, and a page."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from predbn import __version__

from .errors import OverloadError, RequestError
from .guard import check_access, client_of, read_body, while_connected
from .metrics import as_text
from .observer import Observer
from .pictures import picture_row
from .protocol import SESSION, encode_response, parse_request, split_body, stream_id
from .service import Service
from .shares import Shares
from .work import Prediction, Work

if TYPE_CHECKING:
    from .ray_service import RayService

AnyService: TypeAlias = "Service | RayService"

PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
_FILES = "page.html", "openapi.json"
_HEALTH = "/v2/health/live", "/v2/health/ready", "/metrics"
_MAX_CLASSES = 5
"""How many classes are named for a picture."""
_DECODERS = 2
"""How many pictures and large JSON texts are decoded at once; each may take a hundred megabytes."""
_SMALL_JSON = 64 << 10
"""In bytes: less is parsed at once, which takes about a millisecond."""

_MAX_REFUSALS = 50
"""How many requests of a client are refused per second, since each takes time too."""

_log = logging.getLogger("predbn.serving")
Handler = Callable[[Request], Awaitable[Response]]
R = TypeVar("R")


class ServingApp:
    """The handlers, one per kind of request. A RequestError becomes its status and message."""

    def __init__(self, service: AnyService) -> None:
        self._service = service
        self._memory = Shares(service.settings.max_memory)
        self._queue = Shares(service.settings.max_queue * service.replicas)
        self._refused: Counter[str] = Counter()
        self._decoders = ThreadPoolExecutor(_DECODERS, "predbn-decoder")
        self._decoding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._page, self._openapi = ((files("predbn.serving") / name).read_bytes() for name in _FILES)

    def routes(self) -> list[Route]:
        """The handler of each path."""
        routes: list[tuple[str, str, Handler]] = []
        for prefix in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):  # first, being the most frequent
            routes += [
                ("POST", f"{prefix}/infer", self.infer),
                ("POST", f"{prefix}/picture", self.picture),
                ("GET", prefix, self.model_metadata),
                ("GET", f"{prefix}/ready", self.model_ready),
            ]
        routes += [
            ("GET", "/v2/health/live", self.live),
            ("GET", "/v2/health/ready", self.ready),
            ("GET", "/metrics", self.metrics),
            ("GET", "/", self.page),
            ("GET", "/openapi.json", self.openapi),
            ("GET", "/v2", self.server_metadata),
            ("GET", "/v2/streams", self.streams),
            ("GET", "/v2/streams/{id:path}", self.stream),
            ("DELETE", "/v2/streams/{id:path}", self.forget),
        ]
        return [Route(path, self._answering(handler), methods=[method]) for method, path, handler in routes]

    def _answering(self, handler: Handler) -> Handler:
        """Check access and the name of the model, and turn errors into responses."""

        async def answer(request: Request) -> Response:
            try:
                check_access(request, self._service.settings)
                self._check_model(**request.path_params)
                return await handler(request)
            except RequestError as error:
                _release_frames(error)
                refusal = error
            except Exception as error:
                _log.error("request failed", extra={"path": request.scope["path"]}, exc_info=error)
                refusal = RequestError(500, "internal error: see the log of the server.")
            if isinstance(refusal, OverloadError):
                await self._delay(client_of(request))
            extra = {"id": request.scope.get("request_id"), "path": request.scope["path"], "status": refusal.status}
            _log.info("request refused", extra={**extra, "reason": str(refusal)})
            return _failure(refusal)

        return answer

    async def _delay(self, client: str) -> None:
        """Wait before a client is refused, because it may try again at once; longer if that would be often."""
        self._refused[client] += 1
        try:
            await asyncio.sleep(max(OverloadError.DELAY, self._refused[client] / _MAX_REFUSALS))
        finally:
            self._refused[client] -= 1
            if not self._refused[client]:
                del self._refused[client]

    def _check_model(self, model: str | None = None, version: str = "1", id: str | None = None) -> None:
        name = self._service.spec.name
        if model not in (None, name):
            raise RequestError(404, f"unknown model {model[:40]!r}: this server has '{name}'.")
        if version != "1":
            raise RequestError(404, f"model '{name}' has only version 1.")

    async def infer(self, request: Request) -> Response:
        service, client = self._service, client_of(request)
        async with self._enter(request, request.headers.get(SESSION)) as (body, resize):
            arguments = body, request.headers, service.spec, service.settings.max_rows, client
            if len(split_body(body, request.headers)[0]) <= _SMALL_JSON:
                parsed = parse_request(*arguments)
            else:
                parsed = await self._decode(request, parse_request, *arguments)
            resize(len(parsed.work.rows), client, (client, parsed.work.stream))
            prediction = await self._predict(request, parsed.work)
            content, headers = encode_response(parsed, prediction, service.spec)
        return Response(content, headers=headers)

    async def picture(self, request: Request) -> Response:
        """The most probable classes of one picture. Its stream is `?stream=…` or the header x-session-id."""
        service = self._service
        stream = stream_id(request.query_params, request.headers.get(SESSION))
        async with self._enter(request, stream) as (body, _):
            row = await self._decode(request, picture_row, body, service.spec, service.settings.max_pixels)
            prediction = await self._predict(request, Work(row, stream, client=client_of(request)))
        probabilities = prediction.probabilities[0]
        labels = service.spec.labels
        classes = [
            {"class": int(k), "probability": float(probabilities[k]), **({"label": labels[k]} if labels else {})}
            for k in probabilities.argsort()[::-1][:_MAX_CLASSES]
        ]
        return JSONResponse({"model_name": service.spec.name, "stream": stream, "classes": classes})

    @asynccontextmanager
    async def _enter(
        self, request: Request, stream: str | None
    ) -> AsyncIterator[tuple[bytearray, Callable[..., None]]]:
        """Read the body with a place in the queue, for one row until it is resized. What is too much is not read."""
        client = client_of(request)
        with self._queue.reserve("the queue is full") as resize:
            resize(1, client, (client, stream))
            async with read_body(request, self._service.settings, self._memory) as body:
                yield body, resize

    async def _predict(self, request: Request, work: Work) -> Prediction:
        return await while_connected(request, self._service.infer(work), self._service.settings.timeout)

    async def _decode(self, request: Request, function: Callable[..., R], *arguments: Any) -> R:
        """Call a function on a thread. Each client has one at most, so that clients take turns."""
        seconds = self._service.settings.timeout

        async def decode() -> R:
            async with self._decoding.setdefault(client_of(request), asyncio.Lock()):
                return await asyncio.get_running_loop().run_in_executor(self._decoders, function, *arguments)

        try:
            return await asyncio.wait_for(decode(), seconds)
        except asyncio.TimeoutError:
            raise RequestError(503, f"the body was not decoded within {seconds:g} s.", retry_after=5) from None

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        is_ready = self._service.is_ready and not self._service.is_draining
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
        text = as_text(await self._service.metric_families())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request) -> Response:
        return Response(self._openapi, media_type="application/json")

    async def page(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html", headers={"content-security-policy": PAGE_POLICY})


def create_app(service: AnyService, *, health_only: bool = False) -> Starlette:
    """The ASGI application of a service, which is started and stopped with it.

    `health_only` is for a second port: health checks and metrics, of a service that the other application starts.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = Starlette(
        routes=[route for route in ServingApp(service).routes() if not health_only or route.path in _HEALTH],
        middleware=[Middleware(Observer, service.metrics, service.settings.access_log)],
        exception_handlers={HTTPException: _unknown_path},
        lifespan=None if health_only else lifespan,
    )
    app.router.redirect_slashes = False  # it would redirect to whatever the header Host says
    return app


async def _unknown_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.scope["path"][:80]
    return _failure(RequestError(error.status_code, f"{request.method} {path} is not an endpoint of this server."))


def _unknown_stream(request: Request) -> RequestError:
    return RequestError(404, f"unknown stream {request.path_params['id'][:40]!r}.")


def _release_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of an error, whose frames keep the body of the request until the next garbage collection."""
    while error is not None:
        error.__traceback__, error = None, error.__context__


def _failure(error: RequestError) -> Response:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(json.dumps({"error": str(error)}), error.status, headers, "application/json")
