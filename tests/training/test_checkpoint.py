from __future__ import annotations

import pytest
import torch

from predbn.training import TrainingError, checkpoint

from .tiny import DEVICE, TINY

STATE = {"recipe": TINY.describe(), "seed": 3, "epoch": 1, "network": {"w": torch.arange(3.0)}}


def test_written_and_read(tmp_path):
    path = checkpoint.checkpoint_of(tmp_path / "new" / "3")
    checkpoint.write(path, STATE)
    assert [p.name for p in path.parent.iterdir()] == ["3.checkpoint"]
    state = checkpoint.read(path, TINY.describe(), 3, DEVICE)
    assert torch.equal(state["network"]["w"], torch.arange(3.0))


def test_an_interrupted_write_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "3.checkpoint"
    checkpoint.write(path, STATE)

    def stop(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "finish", stop)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.write(path, {**STATE, "epoch": 2})
    assert checkpoint.read(path, TINY.describe(), 3, DEVICE)["epoch"] == 1


@pytest.mark.parametrize(
    ("name", "value", "seed"), [("learning_rate", 0.5, 3), ("norm", "layer", 3), ("epochs", 5, 3), ("seed", 3, 4)]
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, name, value, seed):
    path = tmp_path / "3.checkpoint"
    checkpoint.write(path, {**STATE, "recipe": {**TINY.describe(), name: value} if name != "seed" else STATE["recipe"]})
    wanted = seed if name == "seed" else TINY.describe()[name]
    with pytest.raises(TrainingError, match=f"3.checkpoint is of a run with {name} {value}, not {wanted}: ask for"):
        checkpoint.read(path, TINY.describe(), seed, DEVICE)


@pytest.mark.parametrize("content", [b"", b"torn", None, []])
def test_what_is_no_checkpoint_is_told(tmp_path, content):
    path = tmp_path / "3.checkpoint"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save({"network": {}} if content is None else content, path)
    with pytest.raises(TrainingError, match=r"cannot be read as a checkpoint \(.+\): delete it to start that run anew"):
        checkpoint.read(path, TINY.describe(), 3, DEVICE)


def test_a_checkpoint_that_was_cut_off_is_told(tmp_path):
    path = tmp_path / "3.checkpoint"
    checkpoint.write(path, STATE)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TrainingError, match="cannot be read as a checkpoint"):
        checkpoint.read(path, TINY.describe(), 3, DEVICE)
