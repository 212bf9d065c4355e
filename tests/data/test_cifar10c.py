"""The loader reads what `predbn corrupt` writes, and names damaged files."""

import numpy as np
import pytest
import torch

from predbn.common import PredbnError
from predbn.data import Cifar10C, Corrupted, DataError, Images, ShiftedDataset, write_cifar10c
from predbn.shifts import corrupt

NAMES = ["contrast", "gaussian_noise"]


@pytest.fixture(scope="module")
def clean() -> Images:
    generator = np.random.default_rng(0)
    pixels = torch.from_numpy(generator.integers(0, 256, (12, 3, 32, 32), dtype=np.uint8))
    labels = torch.from_numpy(generator.integers(0, 10, 12))
    return Images(pixels, labels, torch.arange(12), tuple("abcdefghij"), "made")


@pytest.fixture
def folder(clean, tmp_path):
    pixels = np.ascontiguousarray(clean.images.permute(0, 2, 3, 1).numpy())
    write_cifar10c(pixels, clean.labels.numpy(), tmp_path / "c", NAMES, seed=3)
    return tmp_path / "c"


@pytest.mark.parametrize("order", [None, [7, 0, 3]])
def test_stored_and_on_the_fly_splits_are_the_same(clean, folder, order):
    stored, made = Cifar10C(folder, clean=clean), Corrupted(clean, seed=3)
    assert isinstance(stored, ShiftedDataset)
    assert (stored.names, len(stored), stored.name, stored.classes) == (NAMES, 12, "c", clean.classes)
    for split in [("clean", 0), *((name, severity) for name in NAMES for severity in range(1, 6))]:
        pairs = zip(
            stored.batches(*split, 5, order=order), made.batches(*split, 5, order=order, device="cpu"), strict=True
        )
        for one, other in pairs:
            assert one.images.is_contiguous()
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_images_are_corrupted_by_their_index_with_the_seed(clean):
    order = [5, 7, 2]
    for options in ({"seed": 3}, {"seed": 4}):
        expected = corrupt(clean.images, "gaussian_noise", 4, index=clean.index, **options)[order]
        (batch,) = Corrupted(clean.take(order), **options).batches("gaussian_noise", 4, 9)
        assert torch.equal(batch.images, expected)
        assert batch.index.tolist() == order


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (("clean", 1), "severity is 1, but clean has severity 0"),
        (("fog", 0), "severity is 0, but fog has the severities 1 to 5"),
        (("fog", True), "severity is True"),
        (("fogg", 1), "did you mean 'fog'"),
    ],
)
def test_a_wrong_split_is_an_error_at_once(clean, split, message):
    with pytest.raises(PredbnError, match=message):
        Corrupted(clean).batches(*split, 5)


def test_batches_do_not_reach_the_files(folder):
    data = Cifar10C(folder)
    before = np.array(data.split("contrast", 1))
    next(data.batches("contrast", 1, 12)).images.zero_()
    assert np.array_equal(data.split("contrast", 1), before)
    assert data.index.tolist() == list(range(12))
    assert data.classes[0] == "airplane"


def test_clean_images_must_be_those_of_the_folder(clean, folder):
    with pytest.raises(DataError, match=r"has no clean images: give them as Cifar10C\(root, clean="):
        Cifar10C(folder).batches("clean", 0, 4)
    with pytest.raises(DataError, match=r"made are not the clean images of .*: the 5 and 12 labels differ"):
        Cifar10C(folder, clean=clean.take(5))


def test_labels_beyond_ten_are_classes_by_number(folder):
    np.save(folder / "labels.npy", np.full(60, 11))
    assert Cifar10C(folder).classes == tuple(str(label) for label in range(12))


def test_damage_is_named(folder, tmp_path):
    with pytest.raises(DataError, match="nowhere is not a directory"):
        Cifar10C(tmp_path / "nowhere")
    data = Cifar10C(folder)
    with pytest.raises(DataError, match=r"no fog.npy; it has contrast, gaussian_noise"):
        data.split("fog", 1)
    with pytest.raises(DataError, match="severity is 6"):
        data.batches("contrast", 6, 4)
    np.save(folder / "contrast.npy", np.zeros((3, 32, 32, 3), np.uint8))
    with pytest.raises(DataError, match=r"contrast.npy is uint8 \(3, 32, 32, 3\), but it must be uint8 \(60"):
        data.split("contrast", 1)
    whole = (folder / "gaussian_noise.npy").read_bytes()
    (folder / "gaussian_noise.npy").write_bytes(whole[:5000])
    with pytest.raises(DataError, match=r"gaussian_noise.npy cannot be read.*incomplete"):
        data.split("gaussian_noise", 1)
    np.save(folder / "labels.npy", np.zeros(7))
    with pytest.raises(DataError, match=r"labels.npy is float64 \(7,\)"):
        Cifar10C(folder)
    (folder / "labels.npy").unlink()
    with pytest.raises(DataError, match=r"labels.npy is missing"):
        Cifar10C(folder)
