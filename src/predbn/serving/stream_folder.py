"""The folder in which a server keeps its streams.

The files are those of `predbn.norm.DirectoryStore`: one per stream, without pickle, each written atomically and with a
checksum. A server that is killed loses at most what has changed since the last checkpoint. Streams that are not in
memory are read at their next request, so that neither start-up nor memory depends on their number.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Hashable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from predbn.common import AdaptationError, ServingError, lock_folder, read_json, write_json
from predbn.norm import DirectoryStore, SavedStream, Strategy, describe

from .stream_record import StreamRecord

_RECORD = "record of the server"
"""The key of the record among the layers of a file: no layer has a name with spaces."""
_CARD = "server.json"
_REPLICA = "replica-"
_REMEDY = "delete the folder to reset all streams, or choose another one"
_log = logging.getLogger("predbn.serving")


class StreamFolder(DirectoryStore):
    """A store that keeps the record of each stream in its file. It locks the folder against other processes.

    `records` are the streams in memory. `identity` is the model and the strategy that the folder belongs to; a folder
    of another one is refused. The replicas of a server share its folder, which the server has locked and checked;
    `replica` is the number of this one. No two replicas have the same streams, and a replica only waits until the
    process that had its number before has ended.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], records: dict[str, StreamRecord], replica: int | None = None
    ) -> None:
        super().__init__(folder / "streams")
        self._records = records
        self._opened = ExitStack()
        if replica is not None:
            if not (folder / _CARD).exists():
                raise ServingError(f"{folder} is not the folder of the server: all nodes must share this folder.")
            self._opened.enter_context(lock_folder(folder, run=f"{_REPLICA}{replica}", wait=True, error=ServingError))
            return
        self._opened.enter_context(lock_folder(folder, error=ServingError))
        try:
            check_folder(folder, identity)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes use the folder."""
        self._opened.close()

    def put(self, name: Hashable, saved: SavedStream) -> None:
        record = self._records.get(str(name)) or StreamRecord(str(name))
        record.is_changed = False  # before writing, during which it may change
        try:
            super().put(name, {**saved, "layers": {**saved["layers"], _RECORD: record.state()}})
        except BaseException:
            record.is_changed = True
            raise

    def get(self, name: Hashable) -> SavedStream | None:
        record, saved = self._read(name)
        if record is not None:
            self._records[record.id] = record
        return saved

    def record(self, id: str) -> StreamRecord | None:
        """The record of a stream that is not in memory."""
        return self._read(id)[0]

    def _read(self, name: Hashable) -> tuple[StreamRecord | None, SavedStream | None]:
        """A stream, if it is there. A damaged file is renamed, and its stream is reset."""
        try:
            saved = super().get(name)
            return (None, None) if saved is None else (StreamRecord.of(str(name), saved["layers"].pop(_RECORD)), saved)
        except (AdaptationError, KeyError, TypeError) as error:
            path = self._path(name)
            path.replace(path.with_suffix(".damaged"))
            _log.error("stream damaged", extra={"stream": name, "reason": str(error)})
            return None, None


def identity_of(model: nn.Module, strategy: Strategy) -> dict[str, Any]:
    """The model and the strategy that the streams of a folder belong to."""
    return {
        "strategy": str(strategy),
        "model": {layer.name: layer.channels for layer in describe(model)},
        "network": _checksum(model),
    }


def _checksum(model: nn.Module) -> str:
    """SHA-256 of all parameters and buffers, source statistics included."""
    digest = hashlib.sha256()
    for tensor in chain(model.parameters(), model.buffers()):
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_folder(folder: Path, identity: dict[str, Any]) -> None:
    """Refuse a folder of another model or strategy, or one to which replicas of a killed server are still writing.

    The caller has locked the folder.
    """
    for path in folder.glob(f".{_REPLICA}*.lock"):
        with lock_folder(folder, run=path.stem[1:], error=ServingError):
            pass
    card = folder / _CARD
    try:
        known = read_json(card, error=ServingError, remedy=_REMEDY)
    except FileNotFoundError:
        write_json(card, identity)
        return
    for key, value in identity.items():
        if known.get(key) != value:
            raise ServingError(f"{folder} holds streams of another {key}: {_REMEDY}.")


class NoStore:
    """A store for servers without a folder: a stream that leaves memory is forgotten."""

    def get(self, name: Hashable) -> None:
        return None

    def put(self, name: Hashable, saved: SavedStream) -> None:
        pass

    def remove(self, name: Hashable) -> bool:
        return False

    def names(self) -> Iterator[Hashable]:
        return iter(())
