"""Any content of the files of a training is read, or is a TrainingError that names the file."""

from __future__ import annotations

import io
import json

import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.training.networks import finished_networks
from predbn.training.run_files import read_checkpoint
from tests.chaos.fuzzing import BUDGET, damaged, must_read_or_refuse

from .tiny import DEVICE, TINY

RECIPE = TINY.to_dict()
STATE = {"recipe": RECIPE, "seed": 0, "epoch": 1, "network": {"w": torch.arange(3.0)}, "optimiser": {}}
ODD = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.floats() | st.just(torch.ones(2)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@BUDGET
@given(data=st.data())
def test_damaged_checkpoints(tmp_path, data):
    """Without a checksum, which would notice all damage."""
    content, path = io.BytesIO(), tmp_path / "0.checkpoint"
    torch.save(STATE, content)
    path.write_bytes(data.draw(damaged(content.getvalue())))
    must_read_or_refuse(lambda: read_checkpoint(path, RECIPE, 0, DEVICE), path.name)


@BUDGET
@given(content=ODD.map(lambda odd: {"recipe": odd}) | ODD)
def test_odd_cards_of_networks(tmp_path, content):
    (tmp_path / "0.json").write_text(json.dumps(content, default=str))
    (tmp_path / "0.safetensors").touch()
    must_read_or_refuse(lambda: finished_networks(TINY, [0], tmp_path, resume=True), "0.json")
