from __future__ import annotations

import pytest

from predbn.data import DataError
from predbn.data.cifar10_layouts import Arrays
from predbn.data.cifar10_sums import FILES, RECORDED, check


def test_every_file_has_its_own_sums():
    assert tuple(RECORDED) == FILES
    sums = [value for file in RECORDED.values() for value in file.values()]
    assert len(set(sums)) == 12
    assert all(len(value) == 64 for value in sums)


def test_one_wrong_label_is_named(small):
    images, labels = small["test_batch"]
    check("test_batch", "here", small["test_batch"])
    with pytest.raises(DataError, match="here is damaged: its labels are not those of CIFAR-10"):
        check("test_batch", "here", Arrays(images, (labels + 1) % 10))
