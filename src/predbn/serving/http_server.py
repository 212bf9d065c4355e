"""uvicorn with limits of connections and of the time for headers, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from predbn.common import ServingError

from .app import AnyService, create_app
from .errors import OverloadError
from .shares import Shares

_BACKLOG = 1024
_MAX_HEADER = 64 << 10
"""In bytes."""
_OTHER_FILES = 256
"""Descriptors for everything but connections."""
_log = logging.getLogger("predbn.serving")
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Connection(HttpToolsProtocol):
    """A connection that is closed if its client has too many, or if a header does not arrive in time."""

    def __init__(self, *arguments: Any, service: AnyService, connections: Shares, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._service, self._shares = service, connections
        self._deadline: asyncio.TimerHandle | None = None
        self._is_counted = self._is_in_header = self._is_in_body = False
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._is_counted = self._shares.take(1, self._address)
        if self._is_counted:
            self._wait_for_input()
            return
        self._service.metrics.refused_connections.inc()
        transport.pause_reading()
        has_room = len(self.connections) <= self._service.settings.max_connections
        self.loop.call_later(OverloadError.DELAY if has_room else 0, transport.abort)  # it may come back at once

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()
        if self._is_counted:
            self._shares.give_back(1, self._address)

    def data_received(self, data: bytes) -> None:
        was_in_header = self._is_in_header
        super().data_received(data)
        if was_in_header and self._is_in_header:
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_header, self._header_bytes = True, 0
        self._wait_for_input()

    def on_headers_complete(self) -> None:
        self._is_in_header, self._is_in_body = False, True
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body:  # a body that was refused unread
            self._wait_for_input()

    def _wait_for_input(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(self._service.settings.header_timeout, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


class Server(uvicorn.Server):
    """A server that ends as follows.

    At the first signal it says for `shutdown_delay` seconds that it is not ready, unless that is Ctrl-C, then answers
    the requests that it has accepted, and saves the streams. A second Ctrl-C refuses all requests that wait, and a
    third one kills the process. `signals` are those that arrived, and `refused` is how many requests got no answer
    while it ended.
    """

    def __init__(self, config: uvicorn.Config, service: AnyService) -> None:
        super().__init__(config)
        self._service = service
        self.signals: list[int] = []
        self.refused = 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals inside the block. uvicorn would raise them again at its end."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        replaced = {n: signal.signal(n, self.handle_exit) for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN}
        try:
            yield
        finally:
            for number, handler in replaced.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signals.append(sig)
        self.should_exit = True
        if self.signals.count(signal.SIGINT) > 1:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            asyncio.run_coroutine_threadsafe(self._refuse_all(), self._loop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        before = self._service.metrics.unanswered
        await super().shutdown(sockets)
        self.refused = self._service.metrics.unanswered - before

    async def main_loop(self) -> None:
        await super().main_loop()
        _log.info("ending", extra={"signals": self.signals})
        self._service.is_draining = True
        if signal.SIGINT not in self.signals:
            end = self._loop.time() + self._service.settings.shutdown_delay
            while self._loop.time() < end and signal.SIGINT not in self.signals:
                await asyncio.sleep(0.1)

    async def _refuse_all(self) -> None:
        """Refuse the requests that wait, and cut off those that have not arrived or are not answered soon."""
        await self._service.abandon()
        await asyncio.sleep(OverloadError.DELAY)
        connections: list[Any] = list(self.server_state.connections)
        for connection in connections:
            connection.transport.abort()


def http_server(service: AnyService) -> Server:
    """The HTTP server of a service, not yet started."""
    return Server(_config(create_app(service), service), service)


@contextmanager
def health_thread(service: AnyService, listening: socket.socket) -> Iterator[None]:
    """Answer health checks in a thread of their own, inside the block."""
    server = uvicorn.Server(_config(create_app(service, health_only=True), service))
    thread = threading.Thread(target=server.run, args=([listening],), name="predbn-health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5)


def _config(app: Starlette, service: AnyService) -> uvicorn.Config:
    settings = service.settings
    connection: Any = partial(Connection, service=service, connections=Shares(settings.max_connections))
    return uvicorn.Config(
        app,
        http=connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=settings.keep_alive,
        timeout_graceful_shutdown=int(settings.timeout) + 1,
    )


def open_socket(host: str, port: int) -> socket.socket:
    """Listen on the address; port 0 means any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        raise ServingError(f"cannot listen on {host}:{port} ({reason}): change --port.") from None


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def allow_open_files(connections: int) -> None:
    """Raise the limit of open files so that there may be so many connections."""
    with suppress(ImportError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + _OTHER_FILES
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise ServingError(
                f"{connections} connections need {wanted} open files, but the limit is {hard}: raise it (ulimit -Hn), "
                "or allow fewer (--max-connections)."
            )
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
