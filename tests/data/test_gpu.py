"""Batches on a GPU; skipped where there is none."""

import numpy as np
import pytest
import torch

from predbn.data import Corrupted, sample
from predbn.data.npy import from_npy

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("source", ["cpu", "cuda"])
@pytest.mark.parametrize("order", [None, [7, 300, 2, 2]])
def test_batches_come_on_the_device(source, order):
    clean = sample("test")
    expected = list(clean.batches(300, order=order))
    batches = list(clean.to(source).batches(300, order=order, device="cuda"))
    for one, other in zip(expected, batches, strict=True):
        assert (other.images.device.type, other.labels.device.type, other.index.device.type) == ("cuda", "cuda", "cpu")
        assert all(torch.equal(a, b.cpu()) for a, b in zip(one, other, strict=True))
    assert clean.to(source).sums == clean.sums


def test_a_mapped_file_goes_to_the_device(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 20, 24, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    np.save(tmp_path / "labels.npy", np.zeros(9, np.int64))
    (batch,) = from_npy(tmp_path).batches(9, device="cuda")
    assert batch.images.is_contiguous()
    assert np.array_equal(batch.images.cpu().permute(0, 2, 3, 1).numpy(), pixels)


def test_corruption_happens_there():
    data = Corrupted(sample("test").take(50))
    (batch,) = data.batches("contrast", 3, 50, device="cuda")
    assert batch.images.device.type == "cuda"
