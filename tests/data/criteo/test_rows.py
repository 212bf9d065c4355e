"""Batches are the rows in the given order; their parts are those of the reference benchmark."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from predbn.data import DataError
from predbn.data.criteo import Rows, criteo, criteo_folder, prepare_synthetic, synthetic_rows
from predbn.data.criteo.rows import split_at

TABLE = torch.from_numpy(synthetic_rows(50, seed=0).table)
ROWS = Rows(TABLE, "rows", first=1000)


@given(order=st.lists(st.integers(0, 49), max_size=30), size=st.integers(1, 60))
def test_batches_are_the_rows_in_their_order(order, size):
    for given_order, positions in ((None, torch.arange(50)), (order, torch.tensor(order, dtype=torch.int64))):
        batches = list(ROWS.batches(size, order=given_order))
        assert all(len(batch.labels) == size for batch in batches[:-1])
        inputs = torch.cat([TABLE[:0, 1:], *(batch.inputs for batch in batches)])
        assert torch.equal(inputs, TABLE[positions, 1:])
        assert torch.equal(torch.cat([torch.empty(0).long(), *(b.labels for b in batches)]), TABLE[positions, 0].long())
        assert torch.equal(torch.cat([torch.empty(0).long(), *(b.index for b in batches)]), positions + 1000)


def test_rows_are_known_by_their_values():
    assert torch.equal(ROWS.labels, TABLE[:, 0].long())
    assert torch.equal(ROWS.index, torch.arange(1000, 1050))
    assert torch.equal(ROWS.to("cpu").table(torch.tensor([7, 3])), TABLE[[7, 3]])
    assert ROWS.sums == {"rows": hashlib.sha256(TABLE.numpy().tobytes()).hexdigest()}


def test_wrong_arguments_are_errors():
    with pytest.raises(DataError, match=r"must be int32 \[n, 40\]"):
        Rows(TABLE.long(), "rows")
    with pytest.raises(DataError, match="size is 0"):
        ROWS.batches(0)
    with pytest.raises(DataError, match="position 50"):
        ROWS.batches(5, order=np.array([50]))


def test_the_full_file_is_split_as_the_reference_does():
    assert split_at(45_840_617) == (37_000_000, 41_420_308)
    assert split_at(0) == (0, 0)


def test_parts_follow_each_other(tmp_path, monkeypatch):
    monkeypatch.setenv("PREDBN_CACHE", str(tmp_path))
    prepare_synthetic(1000, criteo_folder(synthetic=True))
    parts = [criteo(part, criteo_folder(synthetic=True)) for part in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [807, 96, 97]
    assert torch.equal(torch.cat([part.index for part in parts]), torch.arange(1000))
    (batch,) = parts[2].batches(500)
    assert torch.equal(batch.inputs, torch.from_numpy(synthetic_rows(97, seed=0, first=903).table[:, 1:]))
    with pytest.raises(DataError, match="does not hold prepared rows"):
        criteo("train")
    with pytest.raises(DataError, match="no part 'valid'"):
        criteo("valid", tmp_path)  # type: ignore[arg-type]
    data = criteo_folder(synthetic=True) / "rows.npy"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"rows.npy is damaged"):
        criteo("train", criteo_folder(synthetic=True))
