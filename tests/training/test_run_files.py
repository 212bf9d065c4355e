from __future__ import annotations

import zipfile

import pytest
import torch

from predbn.training import TrainingError
from predbn.training.run_files import read_checkpoint, run_file, write_checkpoint
from tests.chaos.flips import flip_bits

from .tiny import DEVICE, TINY

STATE = {"recipe": TINY.to_dict(), "seed": 3, "epoch": 1, "network": {"w": torch.arange(3.0)}}


def test_a_checkpoint_is_written_and_read(tmp_path):
    path = run_file(tmp_path / "new" / "3", "checkpoint")
    write_checkpoint(path, STATE)
    assert [p.name for p in path.parent.iterdir()] == ["3.checkpoint"]
    for state in (read_checkpoint(path, TINY.to_dict(), 3, DEVICE), torch.load(path)):
        assert torch.equal(state["network"]["w"], torch.arange(3.0))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.comment.startswith(b"predbn-sha256:")
    written = path.read_bytes()
    write_checkpoint(path, STATE)
    assert path.read_bytes() == written


@pytest.mark.parametrize("content", [b"", b"torn", "truncated", None, []])
def test_a_file_that_is_not_a_checkpoint(tmp_path, content):
    path = tmp_path / "3.checkpoint"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "truncated":
        write_checkpoint(path, STATE)
        path.write_bytes(path.read_bytes()[:-100])
    else:
        torch.save({"network": {}} if content is None else content, path)
    with pytest.raises(TrainingError, match=r"cannot be read as a checkpoint \(.+\): delete it to start again"):
        read_checkpoint(path, TINY.to_dict(), 3, DEVICE)


def test_no_flip_of_a_bit_in_a_checkpoint_goes_unnoticed(tmp_path):
    path = tmp_path / "3.checkpoint"
    write_checkpoint(path, STATE)
    flips = flip_bits(
        path, lambda path: read_checkpoint(path, TINY.to_dict(), 3, DEVICE)["network"]["w"].tolist(), count=200
    )
    assert flips.noticed == flips.tried == 200
