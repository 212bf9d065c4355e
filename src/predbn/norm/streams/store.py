"""Where streams go that have not been used for a while, and where they come back from.

A store is anything with the methods of `StreamStore`. `DirectoryStore` has a file per stream on a disk, in the format
of safetensors, which holds tensors and strings and cannot run code when it is read. Files are written atomically and
with a checksum: after a crash there is the state before or the one after, and never half of one.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Hashable
from io import BytesIO
from pathlib import Path
from typing import Protocol, TypedDict, cast

from predbn.common import (
    PARTIAL_SUFFIX,
    AdaptationError,
    has_right_checksum,
    needs_extra,
    parse_tensors,
    read_json,
    write_json,
    write_tensors,
)

from .state import PlainState

_SUFFIX = ".safetensors"
_CARD = "owner.json"
_MAX_WRITING_SECONDS = 3600.0
"""A temporary file that is older was left behind by a process that was killed."""


class Owner(TypedDict):
    """What states belong to: a strategy, and a checksum of the adapted layers' names and of the network's weights."""

    strategy: str
    network: str


class SavedStream(TypedDict):
    """What a stream remembers, and what it belongs to."""

    owner: Owner
    state: PlainState


class DamagedStreamError(AdaptationError):
    """What a store has of a stream was read, and is not what was written."""


class StreamStore(Protocol):
    """Keeps what streams remember. Threads call it at the same time, but never for the same name.

    An OSError says that it does not work now; the streams in memory stay there.
    """

    def claim(self, owner: Owner) -> None:
        """Called by `adapt`. Raise an AdaptationError if the streams that are there belong to another owner."""

    def get(self, name: Hashable) -> SavedStream | None:
        """What was put there last under this name; None if nothing was."""

    def put(self, name: Hashable, saved: SavedStream) -> None:
        """Keep it, in place of what was there. The tensors are the store's own."""

    def remove(self, name: Hashable) -> bool:
        """Forget it; whether there was one."""

    def clear(self) -> None:
        """Forget all streams."""


class DirectoryStore:
    """A folder with a file per stream. Names of streams are strings or integers.

    The name of a file is a hash, because a stream may have a name that no file can have; the real one is in the file.
    Several processes may use the same folder, if they have the same model: what was written last counts.
    """

    def __init__(self, folder: str | Path) -> None:
        with needs_extra("files"):  # now, and not when the first stream is written, which may be hours later
            import safetensors.torch  # noqa: F401
        self.folder = Path(folder)

    def claim(self, owner: Owner) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        remedy = "delete the folder to reset all streams, or choose another one"
        try:
            known = read_json(self.folder / _CARD, error=AdaptationError, remedy=remedy)
        except FileNotFoundError:
            write_json(self.folder / _CARD, owner, is_shared=True)
            return
        for key, value in owner.items():
            if known.get(key) != value:
                raise AdaptationError(f"{self.folder} holds streams of another {key}: {remedy}.")
        for path in self.folder.glob(f"*{PARTIAL_SUFFIX}"):
            if time.time() - path.stat().st_mtime > _MAX_WRITING_SECONDS:
                path.unlink(missing_ok=True)

    def get(self, name: Hashable) -> SavedStream | None:
        path, remedy = self._path(name), "delete it, and its stream begins anew"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        if not has_right_checksum(BytesIO(content), required=True):
            raise DamagedStreamError(f"{path} is damaged (its content has changed since it was written): {remedy}.")
        saved = parse_tensors(content, path, kind="the state of a stream", error=AdaptationError, remedy=remedy)
        if not {"stream", "owner", "state"} <= set(saved):
            raise AdaptationError(f"{path} is not the state of a stream: {remedy}.")
        if saved["stream"] != name:
            raise AdaptationError(f"{path} has the state of stream {saved['stream']!r}, not of {name!r}: {remedy}.")
        del saved["stream"]
        return cast(SavedStream, saved)

    def put(self, name: Hashable, saved: SavedStream) -> None:
        path = self._path(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_tensors(path, {"stream": name, **saved}, is_shared=True)

    def remove(self, name: Hashable) -> bool:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def clear(self) -> None:
        for path in self.folder.glob(f"*{_SUFFIX}"):
            path.unlink(missing_ok=True)

    def _path(self, name: Hashable) -> Path:
        return self.folder / f"{hashlib.sha256(json.dumps(name).encode()).hexdigest()[:32]}{_SUFFIX}"
