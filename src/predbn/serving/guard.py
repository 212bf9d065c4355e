"""Access control and limits of requests: token, host, size and time."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from .errors import RequestError
from .settings import Settings

LOCAL = ("127.0.0.1", "localhost", "::1")
PUBLIC = ("/", "/v2/health/live", "/v2/health/ready")
"""Paths that need no token: the page, which contains no data, and health checks."""


def check_access(request: Request, settings: Settings) -> None:
    """Raise a RequestError if a request is not allowed.

    A server without a token trusts all programs on its machine, but not web pages that are open in a browser there,
    whose requests come from another site, or with a foreign name in the header Host (DNS rebinding).
    """
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise RequestError(403, "cross-site requests are refused.")
    if settings.token is None:
        if settings.host in LOCAL and _host_of(request) not in LOCAL:
            raise RequestError(403, f"this server is local: use the host {settings.host}, or start it with --host.")
    elif request.scope["path"] not in PUBLIC:  # not request.url, which depends on the header Host
        given = request.headers.get("authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, f"Bearer {settings.token}".encode()):
            raise RequestError(401, "the token is missing or wrong: send the header Authorization: Bearer TOKEN.")


def _host_of(request: Request) -> str:
    """The header Host without the port."""
    host = request.headers.get("host", "")
    name, _, port = host.rpartition(":")
    return (name if port.isdecimal() else host).strip("[]").lower()


class BodyReader:
    """Reads bodies, which together never take more than `max_memory` bytes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request, which counts as memory inside the block."""
        encoding, length = (request.headers.get(name, "") for name in ("content-encoding", "content-length"))
        if encoding not in ("", "identity"):
            raise RequestError(415, f"the body has the encoding {encoding[:20]}: send it uncompressed.")
        if length.isascii() and length.isdecimal():
            self._check_size(int(length))
        chunks: list[bytes] = []
        try:
            await asyncio.wait_for(self._collect(request, chunks), self._settings.timeout)
            yield b"".join(chunks)
        except asyncio.TimeoutError:
            raise RequestError(408, f"the body did not arrive within {self._settings.timeout:g} s.") from None
        except ClientDisconnect:
            raise RequestError(400, "the client has disconnected.") from None
        finally:
            self._held -= sum(map(len, chunks))

    async def _collect(self, request: Request, chunks: list[bytes]) -> None:
        size = 0
        async for chunk in request.stream():
            chunks.append(chunk)
            size += len(chunk)
            self._held += len(chunk)
            self._check_size(size)
            if self._held > self._settings.max_memory:
                raise RequestError(503, "too many requests at once: send the request again later.", retry_after=1)

    def _check_size(self, size: int) -> None:
        if size > self._settings.max_body:
            raise RequestError(413, f"the body has more than {self._settings.max_body} bytes: send several requests.")
