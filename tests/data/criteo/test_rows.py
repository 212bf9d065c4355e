"""Rows do not depend on how they are divided into tables; their parts are those of the reference benchmark."""

from __future__ import annotations

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


def cut(*sizes: int) -> Rows:
    return Rows(TABLE.split([*sizes, 50 - sum(sizes)]), "rows", first=1000)


@given(
    sizes=st.lists(st.integers(0, 16), max_size=3),
    order=st.lists(st.integers(0, 49), max_size=30),
    size=st.integers(1, 60),
)
def test_batches_are_the_rows_in_their_order(sizes, order, size):
    rows = cut(*sizes)
    for given_order, positions in ((None, torch.arange(50)), (order, torch.tensor(order, dtype=torch.int64))):
        batches = list(rows.batches(size, order=given_order))
        assert all(len(batch.labels) == size for batch in batches[:-1])
        inputs = torch.cat([TABLE[:0, 1:], *(batch.inputs for batch in batches)])
        assert torch.equal(inputs, TABLE[positions, 1:])
        assert torch.equal(torch.cat([torch.empty(0).long(), *(b.labels for b in batches)]), TABLE[positions, 0].long())
        assert torch.equal(torch.cat([torch.empty(0).long(), *(b.index for b in batches)]), positions + 1000)


def test_parts_and_takes():
    rows = cut(7, 20)
    assert torch.equal(rows.labels, TABLE[:, 0].long())
    part = rows.part(5, 30, "part")
    assert torch.equal(part.index, torch.arange(1005, 1030))
    assert torch.equal(part.to("cpu").tables[0], TABLE[5:30])
    taken = part.take([3, 1, 24])
    assert torch.equal(taken.tables[0], TABLE[[8, 6, 29]])
    assert taken.index.tolist() == [1008, 1006, 1029]
    (batch,) = taken.take(2).batches(9)
    assert batch.index.tolist() == [1008, 1006]
    expected = hashlib.sha256(TABLE.numpy().tobytes()).hexdigest()
    assert rows.sums == cut(50).sums == {"rows": expected}


def test_wrong_arguments_are_errors():
    with pytest.raises(DataError, match="not int32"):
        Rows([TABLE.long()], "rows")
    with pytest.raises(DataError, match="index has shape"):
        Rows([TABLE], "rows", index=torch.arange(3))
    with pytest.raises(DataError, match="cannot take 51 of them"):
        cut().take(51)
    with pytest.raises(DataError, match="size is 0"):
        cut().batches(0)
    with pytest.raises(DataError, match="position 50"):
        cut().batches(5, order=np.array([50]))


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
    shard = criteo_folder(synthetic=True) / "00000.npy"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match="incomplete"):
        criteo("train", criteo_folder(synthetic=True))
