from __future__ import annotations

import numpy as np
import pytest

from predbn.data import DataError, cifar10
from predbn.data.cifar10_cache import cache_file, write_cache
from predbn.data.cifar10_sums import FILES, TRAIN

from .official import LAYOUTS, archive


def expected(small, part):
    names = ["test_batch"] if part == "test" else TRAIN
    images = np.concatenate([small[name].images for name in names])
    labels = np.concatenate([small[name].labels for name in names])
    index = np.arange(len(labels))
    rows = {"train": slice(0, 95), "validation": slice(95, 100)}.get(part, slice(None))
    return images[rows], labels[rows], index[rows]


def same(found, wanted):
    for tensor, array in zip((found.images, found.labels, found.index), wanted, strict=True):
        assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("part", ["train", "validation", "test", "all-train"])
def test_every_source_gives_the_same_images(part, layout, small):
    wanted = expected(small, part)
    same(cifar10(part, layout), wanted)
    same(cifar10(part, archive(layout)), wanted)
    write_cache(cache_file(), ((name, name, small[name]) for name in FILES))
    kept = cifar10(part)
    same(kept, wanted)
    assert kept.name == f"cifar10-{part}"
    assert kept.classes[3] == "cat"
    assert kept.sums == cifar10(part, layout).sums


def test_a_damaged_file_is_named(layout, small):
    name = LAYOUTS[layout.name][1].format("data_batch_2")
    other = LAYOUTS[layout.name][1].format("data_batch_1")
    (layout / name).write_bytes((layout / other).read_bytes())
    with pytest.raises(DataError, match=f"{name} is damaged: its images are not those of CIFAR-10"):
        cifar10("train", layout)
    assert len(cifar10("test", layout)) == 20


def test_what_is_not_there_is_said_with_the_command(cache, tmp_path):
    with pytest.raises(DataError, match=r"CIFAR-10 is not in .*cache: get it with predbn data cifar10"):
        cifar10("test")
    with pytest.raises(DataError, match="nowhere does not exist"):
        cifar10("test", tmp_path / "nowhere")
    with pytest.raises(DataError, match="no part 'valid' of CIFAR-10: use train, validation, test, all-train"):
        cifar10("valid")
