"""What is recorded of every request: its id, its status, how long it took, and a line in the access log."""

from __future__ import annotations

import asyncio
import logging
import time
from secrets import token_hex

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics

_ID = b"x-request-id"
_MAX_ID = 128
_log = logging.getLogger("predbn.serving")


class Observer:
    """ASGI middleware. The id of a request is that of its header x-request-id, or a new one."""

    def __init__(self, app: ASGIApp, metrics: Metrics, access_log: bool) -> None:
        self._app, self._metrics, self._access_log = app, metrics, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        given = next((value for name, value in scope["headers"] if name == _ID), b"")
        id = given[:_MAX_ID] or token_hex(8).encode()
        scope["request_id"] = id.decode("latin-1")
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_ID, id)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:  # the server ends, and the client has not finished its request
            if not status:
                await JSONResponse({"error": "the server has ended."}, 503)(scope, receive, send_with_id)
        finally:
            self._record(scope, status, time.perf_counter() - begin)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        self._metrics.requests.labels(str(status)).inc()
        if scope["method"] == "POST":
            self._metrics.latency.observe(seconds)
        if self._access_log:
            extra = {"id": scope["request_id"], "method": scope["method"], "path": scope["path"], "status": status}
            client = scope["client"][0] if scope["client"] else None
            _log.info("request", extra={**extra, "seconds": round(seconds, 4), "client": client})
