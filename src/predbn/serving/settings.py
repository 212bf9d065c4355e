"""What a server may be told, with the defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from predbn.common import ServingError


@dataclass(frozen=True)
class Settings:
    """How requests are batched, what they may cost, and where the state of streams is kept."""

    name: str = "model"
    """The name of the model in addresses, as in /v2/models/NAME/infer."""
    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    """If set, a client has to send it as `Authorization: Bearer TOKEN`."""

    max_wait: float = 0.005
    """For at most so many seconds a request waits for others that are predicted with it."""
    max_batch: int = 64
    """So many rows are predicted at once. A request with more is predicted by itself: its rows are one batch."""
    max_queue: int = 1024
    """If so many rows are waiting, further requests are refused (503)."""

    max_rows: int = 512
    """The most rows of a request."""
    max_body: int = 64 << 20
    """The most bytes of a request."""
    max_memory: int = 512 << 20
    """The most bytes of all requests that are being read or predicted; further ones are refused (503)."""
    max_pixels: int = 32 << 20
    """The most pixels of a picture before it is resized."""
    timeout: float = 30.0
    """For so many seconds the server waits for the body of a request, and a request for its prediction."""

    state: Path | None = None
    """The folder in which the state of streams is kept; without one it is lost when the server ends."""
    checkpoint_every: float = 10.0
    """After so many seconds changed streams are saved."""
    max_streams: int = 1000
    """So many streams are kept in memory. Others are read from the folder when they come back; without a folder, the
    one that was used least recently is forgotten."""

    def __post_init__(self) -> None:
        if self.state is not None:
            object.__setattr__(self, "state", Path(self.state))  # a text will do
        positive = [field.name for field in fields(self) if field.name.startswith("max_") and field.name != "max_wait"]
        for name in (*positive, "timeout", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ServingError(f"{name} is {getattr(self, name)}, but must be more than 0.")
        if not 0 <= self.max_wait <= self.timeout:
            raise ServingError(f"max_wait is {self.max_wait} s, but must be from 0 to the timeout, {self.timeout:g} s.")
        if not self.name or "/" in self.name or not self.name.isprintable():
            raise ServingError(f"the name {self.name!r} cannot be part of an address: use letters, digits and -_.")
        if self.token is not None and not (self.token and self.token.isascii() and self.token.isprintable()):
            raise ServingError("the token must be one or more ASCII characters, because it is sent in a header.")
