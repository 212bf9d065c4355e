from __future__ import annotations

import zipfile

import pandas as pd
import pytest
import torch

from predbn.training import TrainingError
from predbn.training.run_files import read_checkpoint, run_file, write_checkpoint, write_log
from tests.chaos.flips import flip_bits

from .tiny import DEVICE, TINY

COLUMNS = ("epoch", "learning_rate", "loss", "accuracy", "validation_loss", "validation_accuracy", "seconds")
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


def test_an_interrupted_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "3.checkpoint"
    write_checkpoint(path, STATE)

    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("predbn.common.files.finish_partial", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(path, {**STATE, "epoch": 2})
    assert read_checkpoint(path, TINY.to_dict(), 3, DEVICE)["epoch"] == 1


@pytest.mark.parametrize(
    ("name", "value", "seed"), [("learning_rate", 0.5, 3), ("norm", "layer", 3), ("epochs", 5, 3), ("seed", 3, 4)]
)
def test_a_checkpoint_of_another_run(tmp_path, name, value, seed):
    path = tmp_path / "3.checkpoint"
    write_checkpoint(path, {**STATE, "recipe": {**TINY.to_dict(), name: value} if name != "seed" else STATE["recipe"]})
    expected = seed if name == "seed" else TINY.to_dict()[name]
    with pytest.raises(
        TrainingError, match=f"3.checkpoint belongs to a run with {name} {value}, not {expected}: use the same"
    ):
        read_checkpoint(path, TINY.to_dict(), seed, DEVICE)


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
    flips = flip_bits(path, lambda path: read_checkpoint(path, TINY.to_dict(), 3, DEVICE)["network"]["w"].tolist())
    assert flips.noticed == flips.tried == 1_500


def test_the_log_has_one_row_per_epoch(tmp_path):
    path = tmp_path / "new" / "0.csv"
    for epochs in (1, 3):
        rows = [
            {name: epoch if name == "epoch" else epoch + 0.123456789 for name in COLUMNS} for epoch in range(epochs)
        ]
        write_log(path, rows)
    log = pd.read_csv(path)
    assert tuple(log.columns) == COLUMNS
    assert log["epoch"].tolist() == [0, 1, 2]
    assert log["loss"].tolist() == pytest.approx([0.123456789, 1.123456789, 2.123456789], rel=1e-5)
    assert [file.name for file in path.parent.iterdir()] == ["0.csv"]
