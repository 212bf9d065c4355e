from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from predbn.data import DataError, embedded, sample


@pytest.mark.parametrize(
    ("part", "count", "first", "last"), [("validation", 1000, 45_000, 50_000), ("test", 2000, 0, 10_000)]
)
def test_the_sample_is_balanced_and_in_official_order(part, count, first, last):
    images = sample(part)
    assert images.images.shape == (count, 3, 32, 32)
    assert images.labels.bincount().tolist() == [count // 10] * 10
    assert (images.index.diff() > 0).all()
    assert first <= images.index[0] < images.index[-1] < last


def test_the_test_sample_shares_its_images_with_another_copy():
    path = Path(__file__).parent.parent / "shifts" / "data" / "cifar10-test-2000.webp"
    mosaic = np.asarray(Image.open(path).convert("RGB"))
    first = mosaic.reshape(40, 32, 50, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    images = sample("test")
    both = images.index < 2000
    assert both.sum() > 1900
    assert np.array_equal(images.images[both].numpy(), first[images.index[both].numpy()])


def test_a_damaged_or_unknown_sample_is_said_to_be(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no embedded sample 'train': use validation or test"):
        sample("train")
    for path in embedded.SAMPLE_FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(embedded, "SAMPLE_FOLDER", tmp_path)
    table = np.load(tmp_path / "validation.npy")
    table[0, 1] = (table[0, 1] + 1) % 10
    np.save(tmp_path / "validation.npy", table)
    with pytest.raises(DataError, match="wrong SHA-256"):
        sample("validation")
    (tmp_path / "validation.webp").write_bytes((tmp_path / "validation.webp").read_bytes()[:1000])
    with pytest.raises(DataError, match=r"is damaged .*reinstall"):
        sample("validation")
