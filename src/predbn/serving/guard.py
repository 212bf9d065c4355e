"""Access control, and reading of bodies within limits of size, memory and time."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from .errors import RequestError
from .settings import LOCAL, Settings
from .shares import Shares

R = TypeVar("R")
PUBLIC = ("/", "/v2/health/live", "/v2/health/ready")
"""Paths that need no token: the page, which contains no data, and health checks."""
_GONE = "the client has disconnected."


def check_access(request: Request, settings: Settings) -> None:
    """Raise a RequestError if a request is not allowed.

    A server without a token trusts all programs that reach it, but not web pages that are open in a browser there,
    whose requests come from another site, or with a foreign name in the header Host (DNS rebinding). Browsers send
    Sec-Fetch-Site to trustworthy addresses only, and Origin to all.
    """
    headers = request.headers
    origin, host = headers.get("origin"), headers.get("host", "")
    is_foreign = settings.token is None and origin is not None and origin.partition("://")[2] != host
    if is_foreign or headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise RequestError(403, "cross-site requests are refused.")
    if settings.token is None:
        if settings.is_local and _name_of(host) not in LOCAL:
            raise RequestError(403, f"this server is local: use the host {settings.host}, or start it with --host.")
    elif request.scope["path"] not in PUBLIC:  # not request.url, which depends on the header Host
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(token.strip().encode("latin-1", "replace"), settings.token.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise RequestError(401, "the token is missing or wrong: send the header Authorization: Bearer TOKEN.")


def _name_of(host: str) -> str:
    """The header Host without the port."""
    name, _, port = host.rpartition(":")
    return (name if port.isdecimal() else host).strip("[]").lower()


def client_of(request: Request) -> str:
    """The address of the client, behind a trusted proxy that of its header X-Forwarded-For."""
    return request.client.host if request.client else ""


async def while_connected(request: Request, answer: Awaitable[R], seconds: float) -> R:
    """Await the answer to a request whose body has been read, for so long, and only while the client is there.

    A forward pass that has begun goes on, and changes the stream when it ends.
    """
    answering, gone = asyncio.ensure_future(answer), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answering, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return answering.result()
        if gone.done():  # nothing but the disconnection was left to be received
            raise RequestError(499, _GONE)
        raise RequestError(
            503,
            f"there was no prediction within {seconds:g} s, but the stream may have counted the rows: "
            "send the request again later.",
            retry_after=5,
        )
    finally:
        answering.cancel()
        gone.cancel()


@asynccontextmanager
async def read_body(request: Request, settings: Settings, memory: Shares) -> AsyncIterator[bytearray]:
    """The body of a request, which has a share of the memory inside the block. What is too much is refused unread."""
    encoding, length = (request.headers.get(name, "") for name in ("content-encoding", "content-length"))
    if encoding not in ("", "identity"):
        raise RequestError(415, f"the body has the encoding {encoding[:20]}: send it uncompressed.")
    body, client = bytearray(), client_of(request)
    promised = int(length[:20]) if length.isascii() and length.isdecimal() else 0

    async def collect() -> None:
        async for chunk in request.stream():
            if len(body) + len(chunk) > promised:
                reserve(len(body) + len(chunk))
            body.extend(chunk)

    def reserve(size: int) -> None:
        if size > settings.max_body:
            raise RequestError(413, f"the body has more than {settings.max_body} bytes: send several requests.")
        resize(size, client)

    with memory.reserve("too many requests at once") as resize:
        reserve(promised)
        try:
            await asyncio.wait_for(collect(), settings.timeout)
        except asyncio.TimeoutError:
            raise RequestError(408, f"the body did not arrive within {settings.timeout:g} s.") from None
        except ClientDisconnect:
            raise RequestError(499, _GONE) from None
        yield body
