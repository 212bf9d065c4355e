"""Any content of the files of a training is read, or is a TrainingError that names the file."""

from __future__ import annotations

import io

import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.training.run_files import read_checkpoint
from tests.chaos.fuzzing import BUDGET, damaged, must_read_or_refuse

from .tiny import DEVICE, TINY

RECIPE = TINY.to_dict()
STATE = {"recipe": RECIPE, "seed": 0, "epoch": 1, "network": {"w": torch.arange(3.0)}, "optimiser": {}}


@BUDGET
@given(data=st.data())
def test_damaged_checkpoints(tmp_path, data):
    """Without a checksum, which would notice all damage."""
    content, path = io.BytesIO(), tmp_path / "0.checkpoint"
    torch.save(STATE, content)
    path.write_bytes(data.draw(damaged(content.getvalue())))
    must_read_or_refuse(
        lambda: read_checkpoint(path, RECIPE, 0, DEVICE),
        path.name,
        lambda state: (state["recipe"], state["seed"]) == (RECIPE, 0),
    )
