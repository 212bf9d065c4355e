"""Requests that cannot be answered, with the HTTP status that says why."""

from __future__ import annotations

from functools import partial
from typing import Any

from predbn.common import ServingError


class RequestError(ServingError):
    """One request that is wrong or comes at a wrong time. Its sentence goes to the client; the others are served.

    `retry_after` is after how many seconds it makes sense to send the request again.
    """

    def __init__(self, status: int, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """How it is sent to another process. Exceptions are otherwise made again from their sentence alone."""
        return partial(RequestError, retry_after=self.retry_after), (self.status, str(self))


def late_prediction(seconds: float) -> RequestError:
    """A request waits no longer, but its rows may be in a pass that goes on, and changes the stream when it ends."""
    return RequestError(
        503,
        f"there was no prediction within {seconds:g} s, but the stream may have counted the rows: "
        "send the request again later.",
        retry_after=5,
    )
