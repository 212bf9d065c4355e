from __future__ import annotations

import numpy as np
import pytest

from predbn.data import DataError
from predbn.data.cifar10_cache import cache_file, read_cache, write_cache
from predbn.data.cifar10_layouts import Arrays
from predbn.data.cifar10_sums import FILES


@pytest.fixture
def written(small):
    write_cache(cache_file(), ((name, name, arrays) for name, arrays in small.items()))
    return cache_file()


def test_what_is_kept_is_read_back(written, small, cache):
    assert written == cache / "cifar10.zip"
    assert [p.name for p in cache.iterdir()] == ["cifar10.zip"]
    for name, arrays in zip(FILES, read_cache(written, FILES), strict=True):
        assert np.array_equal(arrays.images, small[name].images)
        assert np.array_equal(arrays.labels, small[name].labels)


def test_the_same_images_give_the_same_file(written, small, tmp_path):
    write_cache(tmp_path / "again.zip", ((name, "elsewhere", arrays) for name, arrays in small.items()))
    assert (tmp_path / "again.zip").read_bytes() == written.read_bytes()


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_flipped_byte_is_found(written, place):
    content = bytearray(written.read_bytes())
    content[int(len(content) * place)] ^= 255
    written.write_bytes(content)
    with pytest.raises(DataError, match=r"cifar10.zip is damaged"):
        read_cache(written, FILES)


def test_a_truncated_file_is_found(written):
    written.write_bytes(written.read_bytes()[:-500])
    with pytest.raises(DataError, match=r"cifar10.zip is damaged .*predbn data cifar10"):
        read_cache(written, FILES)


def test_wrong_images_are_refused_and_leave_nothing(small, cache):
    images = small["data_batch_4"].images.copy()
    images[3, 1, 5, 5] ^= 1
    files = dict(small) | {"data_batch_4": Arrays(images, small["data_batch_4"].labels)}
    with pytest.raises(DataError, match=r"over there is damaged: its images are not those of CIFAR-10 \(SHA-256"):
        write_cache(cache_file(), ((name, "over there", arrays) for name, arrays in files.items()))
    assert list(cache.iterdir()) == []
