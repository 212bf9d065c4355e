from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from predbn.data import SAMPLE_FOLDER, DataError, cifar10, cifar10_cache_file, sample
from predbn.data.cifar10_cache import write_cifar10_cache
from predbn.data.cifar10_files import FILES, TRAIN, CifarFile

from .official import LAYOUTS, archive


def arrays_of(small, part):
    names = ["test_batch"] if part == "test" else TRAIN
    images = np.concatenate([small[name].images for name in names])
    labels = np.concatenate([small[name].labels for name in names])
    index = np.arange(len(labels))
    rows = {"train": slice(0, 95), "validation": slice(95, 100)}.get(part, slice(None))
    return images[rows], labels[rows], index[rows]


def assert_same(images, expected):
    for tensor, array in zip((images.images, images.labels, images.index), expected, strict=True):
        assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("part", ["train", "validation", "test", "all-train"])
def test_every_source_gives_the_same_images(part, layout, small):
    expected = arrays_of(small, part)
    assert_same(cifar10(part, layout), expected)
    assert_same(cifar10(part, layout.parent), expected)
    assert_same(cifar10(part, archive(layout)), expected)
    write_cifar10_cache(cifar10_cache_file(), (CifarFile(name, name, small[name]) for name in FILES))
    cached = cifar10(part)
    assert_same(cached, expected)
    assert cached.name == f"cifar10-{part}"
    assert cached.classes[3] == "cat"
    assert cached.sums == cifar10(part, layout).sums


def test_a_damaged_file_is_named(layout, small):
    name = LAYOUTS[layout.name][1].format("data_batch_2")
    other = LAYOUTS[layout.name][1].format("data_batch_1")
    (layout / name).write_bytes((layout / other).read_bytes())
    with pytest.raises(DataError, match=f"{name} is damaged: its images are not those of CIFAR-10"):
        cifar10("train", layout)
    assert len(cifar10("test", layout)) == 20


def test_errors_for_missing_data_name_the_command(cache, tmp_path):
    with pytest.raises(DataError, match=r"CIFAR-10 is not in .*cache: get it with predbn data cifar10"):
        cifar10("test")
    with pytest.raises(DataError, match="nowhere does not exist"):
        cifar10("test", tmp_path / "nowhere")
    with pytest.raises(DataError, match="no part 'valid' of CIFAR-10: use train, validation, test, all-train"):
        cifar10("valid")


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


def test_a_damaged_or_unknown_sample_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no embedded sample 'train': use validation or test"):
        sample("train")
    for path in SAMPLE_FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setitem(sample.__globals__, "SAMPLE_FOLDER", tmp_path)
    table = np.load(tmp_path / "validation.npy")
    table[0, 1] = (table[0, 1] + 1) % 10
    np.save(tmp_path / "validation.npy", table)
    with pytest.raises(DataError, match="wrong SHA-256"):
        sample("validation")
    (tmp_path / "validation.webp").write_bytes((tmp_path / "validation.webp").read_bytes()[:1000])
    with pytest.raises(DataError, match=r"is damaged .*reinstall"):
        sample("validation")
