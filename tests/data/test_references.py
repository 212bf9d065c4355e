"""Data sets are opened by reference, and unknown references are errors that say what to use."""

import numpy as np
import pytest
from PIL import Image

from predbn.data import (
    Cifar10C,
    DataError,
    ImageNetC,
    cifar10,
    is_shifted,
    open_images,
    open_shifted,
    open_unlabelled,
    resize_crop,
    sample,
    wnids,
    write_cifar10c,
    write_imagenetc,
)

from .folders import make_folder, pixels_of


@pytest.fixture
def npy_folder(tmp_path):
    folder = tmp_path / "arrays"
    folder.mkdir()
    np.save(folder / "images.npy", np.stack([pixels_of(number, 8, 8) for number in range(4)]))
    np.save(folder / "labels.npy", np.arange(4))
    return folder


@pytest.fixture
def class_folder(cache, tmp_path):
    return make_folder(tmp_path / "pets", ["cat", "dog"], each=2, height=20, width=24)


def test_data_sets_with_parts(small, layout):
    for part in ("validation", "test"):
        assert open_images("sample", part).sums == sample(part).sums
        assert open_images(f"cifar10:{layout}", part).sums == cifar10(part, layout).sums
    with pytest.raises(DataError, match="CIFAR-10 is not in"):
        open_images("cifar10", "test")


def test_folders(npy_folder, class_folder):
    assert open_images(str(npy_folder), "test").name == "arrays"
    assert open_images(str(class_folder), "test").images.shape == (4, 3, 20, 24)
    steps = []
    images = open_images(
        str(class_folder),
        "test",
        transform=resize_crop(12, 16),
        progress=lambda done, total: steps.append((done, total)),
    )
    assert images.images.shape == (4, 3, 12, 12)
    assert images.classes == ("cat", "dog")
    assert steps == [(4, 4)]


def test_imagenet(cache, tmp_path):
    root = make_folder(tmp_path / "r", wnids()[::5])
    images = open_images(f"imagenet-r:{root}", "test", transform=resize_crop(4))
    assert (images.name, images.images.shape) == ("imagenet-r", (200, 3, 4, 4))
    with pytest.raises(DataError, match="lacks 800 of the 1,000 classes"):
        open_images(f"imagenet:{root}", "test")
    with pytest.raises(DataError, match=r"data imagenet is read from a folder of yours: add --root DIR, or write"):
        open_images("imagenet", "test")
    with pytest.raises(DataError, match="has corrupted pictures: name the clean ones"):
        open_images(f"imagenet-c:{root}", "test")


def test_an_unknown_reference_is_an_error():
    with pytest.raises(DataError, match=r"There is no data 'cifar': use sample, cifar10, cifar10:PATH, imagenet:DIR"):
        open_images("cifar", "test")
    with pytest.raises(DataError, match=r"There is no data 'nowhere': use sample, cifar10"):
        open_unlabelled("nowhere", "test")
    with pytest.raises(DataError, match="data 'sample' is not shifted data"):
        open_shifted("sample")


def test_shifted_arrays(npy_folder, tmp_path):
    images, labels = (np.load(npy_folder / f"{name}.npy") for name in ("images", "labels"))
    write_cifar10c(images, labels, tmp_path / "c", ["contrast"], seed=0)
    assert is_shifted(str(tmp_path / "c"))
    assert not is_shifted(str(npy_folder))
    assert not is_shifted("cifar10")
    data = open_shifted(str(tmp_path / "c"), str(npy_folder))
    assert isinstance(data, Cifar10C)
    assert data.clean is not None
    assert next(data.batches("contrast", 1, 4)).images.shape == (4, 3, 8, 8)


def test_shifted_pictures(class_folder, tmp_path):
    out = tmp_path / "c"
    write_imagenetc(class_folder, out, ["contrast"], seed=0)
    assert is_shifted(str(out))
    assert not is_shifted(str(class_folder))
    data = open_shifted(str(out), str(class_folder), transform=resize_crop(32))
    assert isinstance(data, ImageNetC)
    assert next(data.batches("clean", 0, 4)).images.shape == (4, 3, 32, 32)
    with pytest.raises(DataError, match="has no class folder of ImageNet"):
        open_shifted(f"imagenet-c:{out}")
    with pytest.raises(DataError, match="data imagenet-c is read from a folder of yours"):
        open_shifted("imagenet-c")


def test_unlabelled_arrays(npy_folder):
    assert open_unlabelled("sample", "validation").sums["images"] == sample("validation").sums["images"]
    expected = np.load(npy_folder / "images.npy").transpose(0, 3, 1, 2)
    (npy_folder / "labels.npy").unlink()
    for reference in (npy_folder, npy_folder / "images.npy"):
        assert np.array_equal(open_unlabelled(str(reference), "test").images.numpy(), expected)
    np.save(npy_folder / "images.npy", expected / 255)
    with pytest.raises(DataError, match=r"images.npy is float64 .*, but must be uint8"):
        open_unlabelled(str(npy_folder), "test")


def test_unlabelled_pictures_at_any_depth(class_folder):
    Image.fromarray(pixels_of(9, 30, 30)).save(class_folder / "top.png")
    pictures = open_unlabelled(str(class_folder), "test", transform=resize_crop(16))
    assert len(pictures) == 5
    batches = list(pictures.batches(2, order=[4, 0, 1]))
    assert [batch.index.tolist() for batch in batches] == [[4, 0], [1]]
    assert batches[0].images.shape == (2, 3, 16, 16)
    expected = Image.fromarray(pixels_of(9, 30, 30)).resize((16, 16), Image.Resampling.BILINEAR)
    assert np.array_equal(batches[0].images[0].permute(1, 2, 0).numpy(), np.asarray(expected))
    (class_folder / "cat" / "empty").mkdir()
    with pytest.raises(DataError, match="has no pictures"):
        open_unlabelled(str(class_folder / "cat" / "empty"), "test")
