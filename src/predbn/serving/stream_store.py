"""The folder in which the state of streams is kept: one file per stream, without pickle, each written atomically.

A server that is killed loses at most what has changed since the last checkpoint. Streams that are not in memory are
read when they come back, so that neither start nor memory depends on how many there are.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from predbn.common import ServingError, lock_folder, read_json, read_tensors, write_json, write_tensors

from .stream_record import StreamRecord

States = dict[str, dict[str, Any]]
"""What the strategy remembers in each layer."""


class Snapshot(NamedTuple):
    """A stream as it was at one moment."""

    record: StreamRecord
    content: dict[str, Any]

    @classmethod
    def of(cls, record: StreamRecord, states: States) -> Snapshot:
        return cls(record, {"stream": record.saved(), "states": states})


_REMEDY = "delete the folder to begin anew, or choose another one"
_log = logging.getLogger("predbn.serving")


class StreamStore:
    """The files of all streams. `identity` says which model and strategy they belong to; others are refused."""

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.folder = folder
        self._files = folder / "streams"
        self._lock = threading.Lock()
        self._opened = ExitStack()
        self._opened.enter_context(lock_folder(folder, error=ServingError))
        try:
            self._check_identity(identity)
            self._files.mkdir(exist_ok=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes use the folder."""
        self._opened.close()

    def write(self, snapshot: Snapshot) -> None:
        """Save a stream, unless it has been forgotten meanwhile."""
        with self._lock:
            if not snapshot.record.is_forgotten:
                write_tensors(self._path(snapshot.record.id), snapshot.content)

    def read(self, id: str) -> tuple[StreamRecord, States] | None:
        """A saved stream; None if there is none. A damaged file is put aside, and the stream begins anew."""
        path = self._path(id)
        try:
            content = read_tensors(path, kind="a stream", error=ServingError, remedy="the stream begins anew")
            return StreamRecord(**content["stream"]), content["states"]
        except FileNotFoundError:
            return None
        except (ServingError, KeyError, TypeError) as error:
            path.replace(path.with_suffix(".damaged"))
            _log.error("stream damaged", extra={"stream": id, "reason": str(error)})
            return None

    def delete(self, id: str) -> bool:
        """Forget a saved stream; False if there is none."""
        with self._lock:
            path = self._path(id)
            is_there = path.exists()
            path.unlink(missing_ok=True)
        return is_there

    def _path(self, id: str) -> Path:
        """An id may have any characters, so its checksum is the name of the file."""
        return self._files / f"{hashlib.sha256(id.encode()).hexdigest()[:40]}.safetensors"

    def _check_identity(self, identity: dict[str, Any]) -> None:
        card = self.folder / "server.json"
        try:
            known = read_json(card, error=ServingError, remedy=_REMEDY)
        except FileNotFoundError:
            write_json(card, identity)
            return
        for key, value in identity.items():
            if known.get(key) != value:
                raise ServingError(f"{self.folder} holds streams of another {key}: {_REMEDY}.")
