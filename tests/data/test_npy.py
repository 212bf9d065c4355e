import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from predbn.data import Cifar10C, Corrupted, DataError, load_array
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


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_images_have_any_number_of_channels(tmp_path, pixels, channels):
    images = np.concatenate([pixels, pixels], 3)[..., :channels]
    expected = torch.from_numpy(images).permute(0, 3, 1, 2)
    layouts = [images, images.transpose(0, 3, 1, 2)] + ([images[..., 0]] if channels == 1 else [])
    for array in layouts:
        assert torch.equal(from_npy(write(tmp_path, array, np.zeros(6, np.int64))).images, expected)


def test_what_is_wrong_is_named(tmp_path, pixels):
    with pytest.raises(DataError, match=r"images.npy is missing; .* has no .npy files"):
        from_npy(tmp_path)
    labels = np.zeros(6, np.int64)
    for images in (pixels.astype(np.float32), pixels[..., 0, 0]):
        with pytest.raises(DataError, match=r"images.npy is .*but must be uint8"):
            from_npy(write(tmp_path, images, labels))
    for wrong in (labels[:5], labels.astype(float)):
        with pytest.raises(DataError, match=r"labels.npy is .*6 integers"):
            from_npy(write(tmp_path, pixels, wrong))
    with pytest.raises(DataError, match="labels go from -1"):
        from_npy(write(tmp_path, pixels, labels - 1))
    (tmp_path / "images.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match=r"images.npy cannot be read"):
        from_npy(tmp_path)


@pytest.mark.parametrize("label", [2**31 - 1, 2**62, 2**64 - 1, 100_000])
def test_a_damaged_label_does_not_become_that_many_classes(tmp_path, pixels, label):
    labels = np.array([0, 1, 2, 0, 1, label], np.uint64)
    with pytest.raises(DataError, match=rf"labels.npy.* {label}.*(at most 100,000 classes|not be negative)"):
        from_npy(write(tmp_path, pixels, labels))
    if label < 2**63:
        (tmp_path / "classes.txt").write_text("cat\ndog\nfox\n")
        with pytest.raises(DataError, match=rf"labels.npy: labels go from 0 to {label}, but there are 3 classes"):
            from_npy(tmp_path)
    (tmp_path / "corrupted").mkdir()
    np.save(tmp_path / "corrupted" / "labels.npy", np.tile(labels, 5))
    np.save(tmp_path / "corrupted" / "fog.npy", np.tile(pixels, (5, 1, 1, 1)))
    with pytest.raises(DataError, match=r"labels.npy.*(at most 100,000 classes|not be negative)"):
        Cifar10C(tmp_path / "corrupted")


def test_many_classes_with_names_are_allowed(tmp_path, pixels):
    write(tmp_path, pixels, np.array([0, 1, 2, 0, 1, 120_000]))
    (tmp_path / "classes.txt").write_text("".join(f"class {number}\n" for number in range(120_001)))
    assert len(from_npy(tmp_path).classes) == 120_001


def test_an_array_that_may_not_be_read_is_not_called_incomplete(tmp_path, monkeypatch):
    np.save(tmp_path / "images.npy", np.zeros(3))

    def closed(path, *arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(DataError, match=r"images.npy cannot be read \(Permission denied\)") as raised:
        load_array(tmp_path / "images.npy")
    assert "incomplete" not in str(raised.value)
