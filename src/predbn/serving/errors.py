"""Errors that are answered with an HTTP status and one sentence."""

from __future__ import annotations

from functools import partial
from typing import Any

from predbn.common import ServingError


class RequestError(ServingError):
    """A request that cannot be answered. Its message goes to the client; other requests are not affected.

    `retry_after` is the number of seconds after which sending it again makes sense.
    """

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all arguments; by default exceptions are unpickled with their message alone."""
        return partial(RequestError, retry_after=self.retry_after), (self.status, str(self))


class OverloadError(RequestError):
    """A request that is refused because there are too many.

    It is answered after `DELAY` seconds, because a client that tries again at once would keep the server busy.
    """

    DELAY = 1.0

    def __init__(self, reason: str) -> None:
        super().__init__(503, f"{reason}: send the request again later.", retry_after=1)


def shutting_down() -> RequestError:
    return RequestError(503, "the server is shutting down: send the request again.", retry_after=5)
