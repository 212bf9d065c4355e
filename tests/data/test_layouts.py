"""What `predbn corrupt` writes, the loaders read back; what is damaged is named."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from predbn.data import Cifar10C, DataError, ImageNetC
from predbn.shifts import corrupt
from predbn.shifts.write import write_cifar10c, write_imagenetc

NAMES = ["contrast", "gaussian_noise"]


@pytest.fixture(scope="module")
def clean() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8), generator.integers(0, 10, 12)


@pytest.fixture
def cifar(clean, tmp_path):
    write_cifar10c(*clean, tmp_path / "c", NAMES, seed=3)
    return tmp_path / "c"


@pytest.fixture
def imagenet(tmp_path):
    for wnid in ("n01", "n02"):
        for i in range(3):
            path = tmp_path / "clean" / wnid / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (230, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path)
    write_imagenetc(tmp_path / "clean", tmp_path / "c", NAMES, seed=3)
    return tmp_path / "c"


def test_cifar10c_is_read_back(clean, cifar):
    images, labels = clean
    data = Cifar10C(cifar)
    assert data.names == NAMES
    assert len(data) == 12
    for name in NAMES:
        for severity in range(1, 6):
            batches = list(data.batches(name, severity, 5))
            assert [len(x) for x, _ in batches] == [5, 5, 2]
            wanted = corrupt(images, name, severity, seed=3, index=np.arange(12))
            read = torch.cat([x for x, _ in batches]).permute(0, 2, 3, 1).numpy()
            assert np.array_equal(read, wanted)
            assert torch.cat([y for _, y in batches]).tolist() == labels.tolist()


def test_imagenetc_is_read_back(imagenet):
    data = ImageNetC(imagenet)
    assert (data.names, data.classes) == (NAMES, ["n01", "n02"])
    x, y = next(data.batches("contrast", 5, 4))
    assert (x.shape, x.dtype) == ((4, 3, 224, 224), torch.uint8)
    assert y.tolist() == [0, 0, 0, 1]
    assert sum(len(y) for _, y in data.batches("gaussian_noise", 1, 4)) == 6


def test_damaged_cifar10c_is_named(cifar, tmp_path):
    with pytest.raises(DataError, match="nowhere is not a directory"):
        Cifar10C(tmp_path / "nowhere")
    data = Cifar10C(cifar)
    with pytest.raises(DataError, match=r"no fog.npy; it has contrast, gaussian_noise"):
        data.split("fog", 1)
    with pytest.raises(DataError, match="severity is 6"):
        data.split("contrast", 6)
    np.save(cifar / "contrast.npy", np.zeros((3, 32, 32, 3), np.uint8))
    with pytest.raises(DataError, match=r"contrast.npy is uint8 \(3, 32, 32, 3\), but it must be uint8 \(60"):
        data.split("contrast", 1)
    whole = (cifar / "gaussian_noise.npy").read_bytes()
    (cifar / "gaussian_noise.npy").write_bytes(whole[:5000])
    with pytest.raises(DataError, match=r"gaussian_noise.npy cannot be read.*cut off"):
        data.split("gaussian_noise", 1)
    np.save(cifar / "labels.npy", np.zeros(7))
    with pytest.raises(DataError, match=r"labels.npy is float64 \(7,\)"):
        Cifar10C(cifar)
    (cifar / "labels.npy").unlink()
    with pytest.raises(DataError, match=r"labels.npy is missing"):
        Cifar10C(cifar)


def test_damaged_imagenetc_is_named(imagenet, tmp_path):
    with pytest.raises(DataError, match="is not a directory"):
        ImageNetC(tmp_path / "nowhere")
    with pytest.raises(DataError, match="point it at the folder that holds them"):
        ImageNetC(imagenet / "contrast" / "1")
    data = ImageNetC(imagenet)
    with pytest.raises(DataError, match="fog/1 is missing"):
        data.split("fog", 1)
    victim = imagenet / "contrast" / "2" / "n01" / "1.JPEG"
    victim.write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"1.JPEG cannot be read as a picture"):
        list(data.batches("contrast", 2, 4))
    (imagenet / "contrast" / "3" / "n09").mkdir()
    with pytest.raises(DataError, match="has the class n09"):
        data.split("contrast", 3)
