from __future__ import annotations

import numpy as np
import pytest
import torch

from predbn.data import Corrupted, DataError
from predbn.data.npy import from_npy


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (6, 33, 40, 3), dtype=np.uint8)


def write(folder, images, labels):
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    return folder


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_both_layouts_give_the_same_images(tmp_path, pixels, planar, dtype):
    stored = pixels.transpose(0, 3, 1, 2) if planar else pixels
    images = from_npy(write(tmp_path, stored, np.array([0, 1, 2, 0, 1, 4], dtype)))
    assert (images.name, images.classes) == (tmp_path.name, ("0", "1", "2", "3", "4"))
    batch = next(images.batches(4, order=[5, 2, 2]))
    assert np.array_equal(batch.images.numpy(), pixels[[5, 2, 2]].transpose(0, 3, 1, 2))
    assert batch.labels.tolist() == [4, 2, 2]
    assert batch.images.is_contiguous()
    assert next(Corrupted(images).batches("contrast", 1, 2)).images.shape == (2, 3, 33, 40)


def test_what_is_written_to_the_images_does_not_reach_the_file(tmp_path, pixels):
    from_npy(write(tmp_path, pixels, np.zeros(6, np.int64))).images.zero_()
    assert np.array_equal(np.load(tmp_path / "images.npy"), pixels)


def test_classes_may_have_names(tmp_path, pixels):
    write(tmp_path, pixels, np.array([0, 1, 0, 1, 0, 1]))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert from_npy(tmp_path).classes == ("cat", "dog")
    (tmp_path / "classes.txt").write_text("cat\n")
    with pytest.raises(DataError, match="labels go from 0 to 1, but there are 1 classes"):
        from_npy(tmp_path)


def test_what_is_wrong_is_named(tmp_path, pixels):
    with pytest.raises(DataError, match=r"images.npy is missing; .* has no .npy files"):
        from_npy(tmp_path)
    labels = np.zeros(6, np.int64)
    for images in (pixels.astype(np.float32), pixels[..., 0], pixels[..., :2]):
        with pytest.raises(DataError, match=r"images.npy is .*but must be uint8"):
            from_npy(write(tmp_path, images, labels))
    for wrong in (labels[:5], labels.astype(float)):
        with pytest.raises(DataError, match=r"labels.npy is .*6 whole numbers"):
            from_npy(write(tmp_path, pixels, wrong))
    with pytest.raises(DataError, match="labels go from -1"):
        from_npy(write(tmp_path, pixels, labels - 1))
    (tmp_path / "images.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match=r"images.npy cannot be read"):
        from_npy(tmp_path)


def test_labels_stay_int64(tmp_path, pixels):
    assert from_npy(write(tmp_path, pixels, np.zeros(6, np.int16))).labels.dtype == torch.int64
