"""The split is that of the reference benchmark, in the order of time."""

from __future__ import annotations

import pytest
import torch

from predbn.data import DataError
from predbn.data.criteo import criteo, criteo_folder, prepare_synthetic, synthetic_rows
from predbn.data.criteo.split import split_at


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
    with pytest.raises(DataError, match="holds no prepared rows"):
        criteo("train")
    with pytest.raises(DataError, match="no part 'valid'"):
        criteo("valid", tmp_path)  # type: ignore[arg-type]
    shard = criteo_folder(synthetic=True) / "00000.npy"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(DataError, match="cut off"):
        criteo("train", criteo_folder(synthetic=True))
