"""Nested dictionaries of tensors as files without code."""

import pytest
import torch

from predbn.common import PredbnError, read_tensors, write_tensors


def read(path):
    return read_tensors(path, kind="a state", error=PredbnError, remedy="write it again")


def test_what_is_read_is_what_was_written(tmp_path):
    shared = torch.arange(3)
    content = {
        "number": 3,
        "text": "ä",
        "nothing": None,
        "layers": {
            "a.b": {"mean": torch.randn(4), "half": torch.randn(2, 3).half(), "passes": 7},
            "c": {"shared": shared, "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3)},
        },
        "again": shared,
    }
    write_tensors(tmp_path / "x", content)
    found = read(tmp_path / "x")
    assert (found["number"], found["text"], found["nothing"]) == (3, "ä", None)
    for name, layer in content["layers"].items():
        for key, value in layer.items():
            got = found["layers"][name][key]
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(got, value, rtol=0, atol=0)
            else:
                assert got == value
    assert found["again"] is found["layers"]["c"]["shared"]  # stored once


def test_the_checksum_is_found_in_a_file_with_a_large_header(tmp_path):
    content = {f"layer {number}": {"mean": torch.randn(2)} for number in range(3000)}
    write_tensors(tmp_path / "x", content)
    damaged = bytearray((tmp_path / "x").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "x").write_bytes(damaged)
    with pytest.raises(PredbnError, match=r"is damaged .*: write it again"):
        read(tmp_path / "x")


@pytest.mark.parametrize("content", [b"", b"x" * 100, (1 << 62).to_bytes(8, "little") + b"{}"])
def test_a_file_of_another_kind_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(PredbnError, match=r"x cannot be read as a state .*: write it again"):
        read(tmp_path / "x")
