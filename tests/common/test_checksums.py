"""A file that has changed since it was written is noticed; files without a checksum are read as they are."""

import hashlib
import json
import os

import pytest

from predbn.common import CHECKSUM_FIELD, DataError, atomic_write, open_checked, read_checked, read_json, write_json
from tests.chaos.flips import flip_bits

OPTIONS = {"error": DataError, "remedy": "make it again"}


def write_summed(path, before, after=b""):
    with atomic_write(path, checksum=True) as partial:
        partial.write_bytes(before + CHECKSUM_FIELD.encode() + after)


def read(path):
    return read_checked(path, **OPTIONS)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (7, 5), (70_000, 90), (90, 70_000)])
def test_no_flip_of_a_bit_goes_unnoticed_wherever_the_checksum_is(tmp_path, before, after):
    path = tmp_path / "x"
    write_summed(path, os.urandom(before), os.urandom(after))
    inside = range(8 * before, 8 * (before + len(CHECKSUM_FIELD)), 3)
    assert flip_bits(path, read, bits=inside).noticed == len(inside)
    assert flip_bits(path, read, count=30).noticed == 30


def test_a_file_of_several_blocks(tmp_path):
    path = tmp_path / "x"
    write_summed(path, os.urandom(70), os.urandom(3 << 20))
    bits = [8 * byte for byte in (0, 200, (1 << 20) - 1, 1 << 20, (2 << 20) + 5, path.stat().st_size - 1)]
    assert flip_bits(path, read, bits=bits).noticed == len(bits)


def test_a_truncated_or_longer_file_is_noticed(tmp_path):
    path = tmp_path / "x"
    write_summed(path, b"a" * 100, b"b" * 100)
    content = path.read_bytes()
    for other in (content[:-1], content[:150], content + b"b"):
        path.write_bytes(other)
        with pytest.raises(DataError, match=r"x is damaged \(its content has changed .*\): make it again\.$"):
            read(path)


def test_a_file_without_a_checksum_is_read_as_it_is(tmp_path):
    path = tmp_path / "x"
    for content in (b"", b"theirs", b"0" * 200_000):
        path.write_bytes(content)
        assert read(path) == content


def test_what_was_checked_is_what_is_read(tmp_path):
    """A file that is replaced between the check and the reading is still the one that was checked."""
    path = tmp_path / "x"
    write_summed(path, b"old")
    with open_checked(path, **OPTIONS) as file:
        write_summed(path, b"new")
        assert file.read().startswith(b"old")


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path):
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\): check its permissions"):
        read(tmp_path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent")


def test_json_is_read_as_it_was_written(tmp_path):
    path, content = tmp_path / "x.json", {"µ": [1, None, {"a": "b"}], "z": "file\udc80"}
    write_json(path, content)
    assert read_json(path, **OPTIONS) == content
    assert list(json.loads(path.read_text(encoding="utf-8"))) == ["µ", "z", "checksum"]
    bits = range(0, 8 * path.stat().st_size, 5)
    assert flip_bits(path, lambda path: read_json(path, **OPTIONS), bits=bits).noticed == len(bits)
    path.write_text('{"theirs": 1}')
    assert read_json(path, **OPTIONS) == {"theirs": 1}


@pytest.mark.parametrize("content", ["", "{", "[1]", "3", '"x"', "\xff", "[" * 100_000, "1" * 10_000])
def test_json_that_is_no_object_is_an_error_that_names_the_file(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=r"x\.json cannot be read as (a )?JSON.*: make it again\.$"):
        read_json(path, **OPTIONS)


@pytest.mark.parametrize("before", [b":", b"predbn-sha256", b"predbn-sha256:"])
def test_bytes_before_the_field_do_not_hide_it(tmp_path, before):
    content = before * 40 + CHECKSUM_FIELD.encode()
    with atomic_write(tmp_path / "file", checksum=True) as partial:
        partial.write_bytes(content)
    written = (tmp_path / "file").read_bytes()
    digits = hashlib.sha256(written[:-78] + written[-14:]).hexdigest()
    assert written == before * 40 + f"predbn-sha256:{digits}:predbn-sha256".encode()
    assert read_checked(tmp_path / "file", error=DataError, remedy="") == written
