"""Damaged and hostile files: whatever is in them, a reader returns something or raises a PredbnError.

The examples are valid files of every kind with a few bytes changed, cut or inserted. Hypothesis draws the same ones in
every run. The limit on memory is low, and the memory of this process is measured at the end.
"""

import gzip
import io
import pickle
import resource
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from predbn.data import load_array, prepare_criteo, read_cifar10_cache, read_picture, resize_crop
from predbn.data.cifar10_cache import write_cifar10_cache
from predbn.data.cifar10_files import Arrays, CifarFile, read_files
from predbn.data.cifar10c import Cifar10C
from predbn.data.criteo import criteo
from predbn.data.npy import from_npy

from ..chaos.fuzzing import damaged, must_read_or_refuse
from .criteo.examples import header, lines
from .folders import pixels_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:PIL"),
    pytest.mark.filterwarnings("ignore:Reading .* file required additional header parsing:UserWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]

EXAMPLES = 30
MAX_BYTES = 1 << 24
MAX_GROWTH = 400 << 20


@pytest.fixture(autouse=True, scope="module")
def _memory_is_bounded(tmp_path_factory):
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("predbn.data.reading.MAX_BYTES", MAX_BYTES)
        patch.setenv("PREDBN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before < MAX_GROWTH


def changed(contents: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.sampled_from(contents).flatmap(damaged)


def write(folder, name, content) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def pictures() -> list[bytes]:
    contents = []
    picture = Image.fromarray(pixels_of(0, 12, 14))
    for kind, options in (
        ("PNG", {}),
        ("JPEG", {"progressive": True}),
        ("JPEG", {}),
        ("BMP", {}),
        ("GIF", {}),
        ("PPM", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_deflate"}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
    ):
        file = io.BytesIO()
        picture.save(file, kind, **options)
        contents.append(file.getvalue())
    for mode in ("P", "L", "1", "I;16", "LA"):
        file = io.BytesIO()
        (picture.convert("I") if mode == "I;16" else picture).convert(mode).save(file, "PNG")
        contents.append(file.getvalue())
    return contents


@settings(max_examples=5 * EXAMPLES)
@given(content=changed(pictures()), resized=st.booleans())
def test_pictures(folder, content, resized):
    path, transform = write(folder, "picture.png", content), resize_crop(8, 9) if resized else None

    def is_picture(pixels):
        return pixels.dtype == np.uint8 and pixels.shape == (*((8, 8) if resized else pixels.shape[:2]), 3)

    must_read_or_refuse(lambda: read_picture(path, transform), path.name, is_picture)


def arrays() -> list[bytes]:
    contents = []
    for array in (pixels_of(0, 4, 4)[None], np.arange(6), np.array(3), np.zeros((0, 2)), np.array([1.5, np.nan])):
        file = io.BytesIO()
        np.save(file, array)
        contents.append(file.getvalue())
    file = io.BytesIO()
    np.savez(file, a=np.arange(3))
    hostile = b"\x93NUMPY\x01\x00"
    for text in (
        "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)",
        "{" * 200,
        "[]",
    ):
        contents.append(hostile + len(text).to_bytes(2, "little") + text.encode() + bytes(64))
    return [*contents, file.getvalue(), b""]


@settings(max_examples=3 * EXAMPLES)
@given(images=changed(arrays()), labels=changed(arrays()))
def test_arrays(folder, images, labels):
    path = write(folder, "images.npy", images)
    write(folder, "labels.npy", labels)
    must_read_or_refuse(lambda: load_array(path), path.name, lambda array: array.dtype != object)
    for read in (from_npy, Cifar10C):
        must_read_or_refuse(lambda read=read: read(folder), folder.name, has_labels)


def has_labels(data):
    return len(data.labels) == len(data) and all(0 <= label < len(data.classes) for label in data.labels.tolist())


def texts() -> list[bytes]:
    rows = [row.replace("\t", ",") for row in lines(6)]
    quoted = [",".join(f'"{cell}"' for cell in row.split(",")) for row in rows]
    plain = "\n".join(lines(6)) + "\n"
    return [
        plain.encode(),
        gzip.compress(plain.encode()),
        "\n".join([header(), *rows]).encode(),
        "\r\n".join([header() + ",period", *(row + ",late" for row in quoted)]).encode(),
        "\n".join([header(), *quoted[:2], rows[2] + '"', rows[3].replace(",", ',"', 1), *rows[4:]]).encode(),
    ]


@settings(max_examples=3 * EXAMPLES)
@given(content=changed(texts()), where=st.sampled_from([{}, {}, {"label": "1"}, {"C3": ""}, {"period": "late"}]))
def test_text_of_criteo(tmp_path_factory, content, where):
    folder = tmp_path_factory.mktemp("criteo")
    path = write(folder, "rows.csv", content)

    def is_prepared(prepared):
        assert len(criteo("all", folder / "out")) == prepared.rows > 0
        return where or prepared.rows + prepared.rejected == prepared.lines

    must_read_or_refuse(
        lambda: prepare_criteo(path, folder / "out", where=where, threads=1, block=800), path.name, is_prepared
    )


def batches() -> list[bytes]:
    images, labels = np.zeros((2, 3, 32, 32), np.uint8), np.arange(2)
    contents = [pickle.dumps({"data": images.reshape(len(images), -1), "labels": labels.tolist()}, protocol=2)]
    return [*contents, pickle.dumps([1, 2]), pickle.dumps({"data": 3}), b"cos\nsystem\n(S'true'\ntR."]


def archived(content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        entry = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


@settings(max_examples=2 * EXAMPLES)
@given(content=changed(batches()), archive=changed([archived(content) for content in batches()]))
def test_official_files(folder, content, archive):
    write(folder, "data_batch_1", content)
    for path in (folder, write(folder, "archive.tar.gz", archive)):
        must_read_or_refuse(lambda path=path: [*read_files(path, ["data_batch_1"])], "", are_images)


def are_images(files):
    return all(file.arrays.images.shape == (len(file.arrays.labels), 3, 32, 32) for file in files)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_the_cache_of_cifar10(folder, data):
    path = folder / "cifar10.npz"
    original = data.draw(st.just(_cache_content(folder)))
    path.write_bytes(data.draw(changed([original])))
    must_read_or_refuse(lambda: read_cifar10_cache(path, ["data_batch_1"]), path.name, bool)


def _cache_content(folder) -> bytes:
    path = folder / "whole.zip"
    if not path.exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("predbn.data.cifar10_cache.verify", lambda file: None)
            arrays = Arrays(np.zeros((4, 3, 32, 32), np.uint8), np.zeros(4, np.int64))
            write_cifar10_cache(path, [CifarFile("data_batch_1", "here", arrays)])
    return path.read_bytes()
