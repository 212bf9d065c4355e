"""The settings of a server."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path

from predbn.common import ServingError

LOCAL = ("127.0.0.1", "localhost", "::1")
"""The names of this machine for its own programs."""


@dataclass(frozen=True)
class Settings:
    """Address, batching, limits, and where the state of streams is kept."""

    name: str = "model"
    """The name of the model in URLs, as in /v2/models/NAME/infer."""
    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    """If set, clients must send `Authorization: Bearer TOKEN`."""
    public: bool = False
    """Whether a server without a token may listen on an address that other machines reach."""
    health_port: int | None = None
    """A second port, with a thread of its own, for health checks and metrics only."""

    max_wait: float = 0.005
    """How many seconds a batch waits for requests, if nobody has more of them than his share."""
    max_batch: int = 64
    """Rows of a forward pass. A request with more is predicted by itself, since its rows are one batch."""
    max_queue: int = 2048
    """Rows that are being read, wait, or are predicted (by each replica); further requests are refused (503)."""

    max_rows: int = 512
    """Rows of a request."""
    max_body: int = 64 << 20
    """Bytes of a request."""
    max_memory: int = 512 << 20
    """Bytes of all requests that are being read or predicted; further ones are refused (503)."""
    max_pixels: int = 32 << 20
    """Pixels of a picture, before and after resizing."""
    timeout: float = 30.0
    """How many seconds the server waits for the body of a request, and a request for its prediction."""
    max_connections: int = 2000
    """Open connections; further ones are closed."""
    header_timeout: float = 10.0
    """How many seconds the server waits for the header of a request."""
    keep_alive: int = 5
    """After how many seconds without a request a connection is closed."""
    shutdown_delay: float = 0.0
    """How many seconds the server goes on after SIGTERM while it says that it is not ready."""

    access_log: bool = False
    """Whether every request is logged."""
    stream_metrics: bool = True
    """Whether metrics have the ids of streams as labels."""

    state: Path | None = None
    """The folder for the state of streams; without one, it is lost when the server ends."""
    checkpoint_every: float = 10.0
    """How often changed streams are saved, in seconds."""
    max_streams: int = 1000
    """Streams in memory. Others are read from the folder at their next request; without a folder, the least recently
    used one is forgotten."""

    def __post_init__(self) -> None:
        if self.state is not None:
            object.__setattr__(self, "state", Path(self.state))  # may be a string
        positive = [field.name for field in fields(self) if field.name.startswith("max_") and field.name != "max_wait"]
        for name in (*positive, "timeout", "header_timeout", "keep_alive", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ServingError(f"{name} must be positive, got {getattr(self, name)}.")
        if not 0 <= self.max_wait <= self.timeout:
            raise ServingError(
                f"max_wait must be between 0 and the timeout, {self.timeout:g} s, got {self.max_wait} s."
            )
        if not self.name or "/" in self.name or not self.name.isprintable():
            raise ServingError(f"the name {self.name!r} cannot be part of a URL: use letters, digits and -_.")
        if self.token is not None and not re.fullmatch("[!-~]+", self.token):
            raise ServingError("the token must be printable ASCII without spaces, and not empty: a header has it.")
        if not (self.is_local or self.token or self.public):
            raise ServingError(
                f"anyone who reaches {self.host or 'this machine'} could use the server: set a token (--token), or "
                "allow it (--public)."
            )

    @property
    def is_local(self) -> bool:
        """Whether only programs on this machine reach the server."""
        try:
            return self.host in LOCAL or ip_address(self.host).is_loopback
        except ValueError:  # a name
            return False
