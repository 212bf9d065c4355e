"""The folder in which a server keeps its streams, so that they outlive it.

The files are those of `predbn.norm.DirectoryStore`: one per stream, without pickle, each written atomically and with a
checksum. A server that is killed loses at most what has changed since the last checkpoint. Streams that are not in
memory are read when they come back, so that neither start nor memory depends on how many there are.
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
"""Stands in the file of a stream where a layer would: no layer has a name with spaces."""
_CARD = "server.json"
_NETWORK = "network"
_REPLICA = "replica-"
_REMEDY = "delete the folder to begin anew, or choose another one"
_log = logging.getLogger("predbn.serving")


class StreamFolder(DirectoryStore):
    """A store of streams that keeps the record of each stream in the same file. Other processes are kept out.

    `records` are the streams in memory. `identity` says which model and strategy the folder belongs to; a folder of
    others is refused. The replicas of a server share its folder: `replica` is the number of this one. The server has
    locked and checked the folder, and no two replicas have the same streams; a replica only waits until the one that
    had its number before has ended.
    """

    def __init__(
        self, folder: Path, identity: dict[str, Any], records: dict[str, StreamRecord], replica: int | None = None
    ) -> None:
        super().__init__(folder / "streams")
        self._records = records
        self._opened = ExitStack()
        if replica is not None:
            if not (folder / _CARD).exists():
                raise ServingError(f"{folder} is not here what it is for the server: all nodes must share this folder.")
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
        record.is_changed = False  # before it is written: it may change meanwhile
        try:
            super().put(name, {**saved, "layers": {**saved["layers"], _RECORD: record.state()}})
        except BaseException:
            record.is_changed = True
            raise

    def get(self, name: Hashable) -> SavedStream | None:
        found = self._read(name)
        if found is None:
            return None
        record, saved = found
        self._records[record.id] = record
        return saved

    def record(self, id: str) -> StreamRecord | None:
        """What is known about a stream that is not in memory."""
        found = self._read(id)
        return None if found is None else found[0]

    def _read(self, name: Hashable) -> tuple[StreamRecord, SavedStream] | None:
        """A stream; None if there is none. A damaged file is put aside, and its stream begins anew."""
        try:
            saved = super().get(name)
            return None if saved is None else (StreamRecord.of(str(name), saved["layers"].pop(_RECORD)), saved)
        except (AdaptationError, KeyError, TypeError) as error:
            path = self._path(name)
            path.replace(path.with_suffix(".damaged"))
            _log.error("stream damaged", extra={"stream": name, "reason": str(error)})
            return None


def identity_of(model: nn.Module, strategy: Strategy) -> dict[str, Any]:
    """What the streams of a folder have in common."""
    return {
        "strategy": str(strategy),
        "model": {layer.name: layer.channels for layer in describe(model)},
        _NETWORK: _checksum(model),
    }


def _checksum(model: nn.Module) -> str:
    """SHA-256 of all parameters and buffers, among which are the source statistics."""
    digest = hashlib.sha256()
    for tensor in chain(model.parameters(), model.buffers()):
        digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_folder(folder: Path, identity: dict[str, Any]) -> None:
    """Refuse a folder of another model or strategy, or one in which replicas of an earlier server are still writing.

    Replicas may outlive a server that was killed. The caller has locked the folder.
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
    is_old = _NETWORK not in known  # written by a version that did not look at the weights
    for key, value in identity.items():
        if known.get(key) != value and not (is_old and key == _NETWORK):
            raise ServingError(f"{folder} holds streams of another {key}: {_REMEDY}.")
    if is_old:
        write_json(card, identity)


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
