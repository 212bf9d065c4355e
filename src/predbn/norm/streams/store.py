"""Where streams go that have not been used for a while, and where they come back from.

A store is anything with the methods of `StreamStore`. `DirectoryStore` has a file per stream on a disk, in the format
of safetensors, which holds tensors and strings and cannot run code when it is read. Files are written atomically and
with a checksum: after a crash there is the state before or the one after, and never half of one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypedDict

from torch import Tensor

from predbn.common import CHECKSUM_FIELD, AdaptationError, atomic_write, first_line, needs_extra, read_checked

from .state import States

_SUFFIX = ".safetensors"
_SEPARATOR = "/"
"""Between the name of a layer, which has dots, and that of its tensor."""


class SavedStream(TypedDict):
    """What a stream remembers: the strategy that wrote it, and the tensors and numbers of each layer."""

    strategy: str
    layers: States


class StreamStore(Protocol):
    """Keeps what streams remember. It is called by one thread at a time."""

    def get(self, name: Hashable) -> SavedStream | None:
        """What was put there last under this name; None if nothing was."""

    def put(self, name: Hashable, saved: SavedStream) -> None:
        """Keep it, in place of what was there. The tensors are the store's own."""

    def remove(self, name: Hashable) -> bool:
        """Forget it; whether there was one."""

    def names(self) -> Iterator[Hashable]:
        """The streams that are there."""


class DirectoryStore:
    """A folder with a file per stream. Names of streams are strings or integers.

    The name of a file is a hash, because a stream may have a name that no file can have; the real one is in the file.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, name: Hashable) -> SavedStream | None:
        path = self._path(name)
        try:
            tensors, card = _read(path)
        except FileNotFoundError:
            return None
        layers: States = {layer: {} for layer in card["layers"]}
        for key, value in (*tensors.items(), *card["numbers"].items()):
            layer, _, name_in_layer = key.rpartition(_SEPARATOR)
            layers[layer][name_in_layer] = value
        return {"strategy": card["strategy"], "layers": layers}

    def put(self, name: Hashable, saved: SavedStream) -> None:
        with needs_extra("files"):
            from safetensors.torch import save

        path = self._path(name)
        tensors, numbers = {}, {}
        for layer, state in saved["layers"].items():
            for own, value in state.items():
                key = f"{layer}{_SEPARATOR}{own}"
                if isinstance(value, Tensor):
                    tensors[key] = value.detach().cpu().clone().contiguous()  # layers may share one
                else:
                    numbers[key] = value
        card = {
            "stream": name,
            "strategy": saved["strategy"],
            "layers": list(saved["layers"]),
            "numbers": numbers,
            "checksum": CHECKSUM_FIELD,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, checksum=True) as partial:
            partial.write_bytes(save(tensors, {"card": json.dumps(card)}))

    def remove(self, name: Hashable) -> bool:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def names(self) -> Iterator[Hashable]:
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            yield _read(path)[1]["stream"]

    def _path(self, name: Hashable) -> Path:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise AdaptationError(f"stream {name!r} cannot be stored in {self.folder}: stream ids must be str or int")
        return self.folder / f"{hashlib.sha256(json.dumps(name).encode()).hexdigest()[:32]}{_SUFFIX}"


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with needs_extra("files"):
        from safetensors.torch import load

    remedy = "delete it, and its stream begins anew"
    content = read_checked(path, error=AdaptationError, remedy=remedy)
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        card: dict[str, Any] = json.loads(header["__metadata__"]["card"])
        card["stream"], card["strategy"], card["layers"], card["numbers"]
        return load(content), card
    except Exception as error:  # safetensors raises many kinds
        reason = f"there is no {error}" if isinstance(error, KeyError) else first_line(error)
        raise AdaptationError(f"{path} cannot be read as the state of a stream ({reason}): {remedy}.") from None
