"""Any content of a weight file is read, or is a ModelError that names the file: nothing else comes out."""

from __future__ import annotations

import io
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from predbn.models import load_weights, read_weights
from tests.chaos.fuzzing import BUDGET, damaged, must_read_or_refuse

STATE = {"weight": torch.ones(3, 2), "bias": torch.zeros(3)}


def saved(content, **options) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **options)
    return file.getvalue()


CONTENTS = {
    "theirs.safetensors": save(STATE, {"card": json.dumps({"seed": 1})}),
    "zipped.pt": saved(STATE),
    "old.pth": saved(STATE, _use_new_zipfile_serialization=False),
}


def load_into_layer(path):
    layer = torch.nn.Linear(2, 3)
    load_weights(layer, read_weights(path)[0], str(path))
    return layer


def is_layer(layer):
    kinds = [(tuple(t.shape), t.dtype, t.device.type) for t in (layer.weight, layer.bias)]
    return kinds == [((3, 2), torch.float32, "cpu"), ((3,), torch.float32, "cpu")]


def is_layer_of_ones(layer):
    """As every tensor above that fits."""
    return is_layer(layer) and all((t == 1).all() for t in layer.parameters())


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("name", CONTENTS)
@BUDGET
@given(data=st.data())
def test_damaged_weights(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data.draw(damaged(CONTENTS[name])))
    must_read_or_refuse(lambda: load_into_layer(path), name, is_layer)


PLAIN = st.none() | st.integers() | st.text(max_size=3) | st.floats()
TENSORS = st.sampled_from(
    [
        torch.ones(3),
        torch.ones(3, 2),
        torch.ones(2, 3),
        torch.tensor(1),
        torch.ones(3, 2, dtype=torch.complex64),
        torch.ones(3, 2, dtype=torch.bool),
        torch.ones(3, 2, dtype=torch.float8_e4m3fn),
        torch.eye(3).to_sparse(),
        torch.ones(3, 2, device="meta"),
        torch.nn.Parameter(torch.ones(3)),
    ]
)
KEYS = st.sampled_from(["weight", "bias", "module.weight", "state_dict", "model", 0, None, ("a", 1), 1.5])
OBJECTS = st.recursive(
    PLAIN | TENSORS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@BUDGET
@given(content=OBJECTS)
def test_other_objects_than_state_dicts(tmp_path, content):
    path = tmp_path / "odd.pt"
    torch.save(content, path)
    must_read_or_refuse(lambda: load_into_layer(path), path.name, is_layer_of_ones)
