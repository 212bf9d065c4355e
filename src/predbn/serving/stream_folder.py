"""The folder in which a server keeps its streams.

The files are those of `predbn.norm.DirectoryStore`: one per stream, without pickle, each written atomically and with a
checksum. A server that is killed loses at most what has changed since the last checkpoint. Streams that are not in
memory are read at their next request, so that neither start-up nor memory depends on their number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from predbn.common import AdaptationError, ServingError, lock_folder
from predbn.norm import DamagedStreamError, DirectoryStore, Owner, SavedStream

from .errors import RequestError
from .stream_record import StreamRecord

_RECORD = "record"
"""The key of the record in a file."""
STREAMS = "streams"
"""The folder of the files."""
_REPLICA = "replica-"
_log = logging.getLogger("predbn.serving")


class StreamFolder(DirectoryStore):
    """A store that keeps the record of each stream in its file. It locks the folder against other processes.

    `records` are the streams in memory. The replicas of a server share its folder, which the server has locked;
    `replica` is the number of this one. No two replicas have the same streams, and a replica only waits until the
    process that had its number before has ended. `on_event` is called with "damaged" and "unreadable". `written` are
    the streams that were written since it was cleared.
    """

    def __init__(
        self,
        folder: Path,
        records: dict[str, StreamRecord],
        replica: int | None = None,
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(folder / STREAMS)
        self._records, self._on_event = records, on_event
        self.written: set[Hashable] = set()
        self._opened = ExitStack()
        if replica is None:
            self._opened.enter_context(lock_folder(folder, error=ServingError))
            try:
                check_replicas(folder)
            except BaseException:
                self.close()
                raise
            return
        if not self.folder.exists():
            raise ServingError(f"{folder} is not the folder of the server: all nodes must share this folder.")
        self._opened.enter_context(lock_folder(folder, run=f"{_REPLICA}{replica}", wait=True, error=ServingError))

    def close(self) -> None:
        """Let other processes use the folder."""
        self._opened.close()

    def put(self, name: Hashable, saved: SavedStream) -> None:
        record = self._records.get(str(name)) or StreamRecord(str(name))
        super().put(name, cast(SavedStream, {**saved, _RECORD: record.state()}))
        self.written.add(name)

    def get(self, name: Hashable) -> SavedStream | None:
        record, saved = self._read(name)
        if record is not None:
            self._records[record.id] = record
        return saved

    def record(self, id: str) -> StreamRecord | None:
        """The record of a stream that is not in memory."""
        return self._read(id)[0]

    def _read(self, name: Hashable) -> tuple[StreamRecord | None, SavedStream | None]:
        """A stream, if it is there. A damaged file is renamed, and its stream begins anew.

        Whatever else goes wrong, such as too many open files, says nothing about the file: it stays as it is, and the
        request is refused.
        """
        try:
            saved = cast(Any, super().get(name))
            return (None, None) if saved is None else (StreamRecord.of(str(name), saved[_RECORD]), saved)
        except DamagedStreamError as error:
            path = self._path(name)
            path.replace(path.with_suffix(".damaged"))
            self._on_event("damaged")
            _log.error("stream damaged", extra={"stream": name, "reason": str(error)})
            return None, None
        except (OSError, MemoryError, AdaptationError, KeyError, TypeError) as error:
            self._on_event("unreadable")
            _log.error("stream not read", extra={"stream": name, "reason": str(error)})
            raise RequestError(
                503,
                f"the state of stream {str(name)[:40]!r} cannot be read now: send the request again later.",
                retry_after=5,
            ) from None


def check_replicas(folder: Path) -> None:
    """Refuse a folder to which replicas of a killed server are still writing. The caller has locked the folder."""
    for path in folder.glob(f".{_REPLICA}*.lock"):
        with lock_folder(folder, run=path.stem[1:], error=ServingError):
            pass


class NoStore:
    """A store for servers without a folder: a stream that leaves memory is forgotten."""

    def claim(self, owner: Owner) -> None:
        pass

    def get(self, name: Hashable) -> None:
        return None

    def put(self, name: Hashable, saved: SavedStream) -> None:
        pass

    def remove(self, name: Hashable) -> bool:
        return False

    def clear(self) -> None:
        pass
