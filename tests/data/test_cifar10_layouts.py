from __future__ import annotations

import io
import pickle

import numpy as np
import pytest

from predbn.data import DataError
from predbn.data.cifar10_layouts import read_archive, read_layout
from predbn.data.cifar10_sums import FILES

from .official import LAYOUTS, archive


def same(read, small) -> None:
    assert [name for name, _, _ in read] == list(FILES)
    for name, _, arrays in read:
        assert np.array_equal(arrays.images, small[name].images)
        assert np.array_equal(arrays.labels, small[name].labels)
        assert (arrays.images.dtype, arrays.labels.dtype) == (np.uint8, np.int64)
        assert arrays.images.flags.c_contiguous
        assert arrays.images.flags.writeable


def test_folder_parent_and_archive_hold_the_same_arrays(layout, small):
    same(list(read_layout(layout, FILES)), small)
    same(list(read_layout(layout.parent, FILES)), small)
    same(list(read_layout(archive(layout), FILES)), small)


def test_pickles_of_today_are_read_too(small, tmp_path):
    for name, arrays in small.items():
        held = {b"data": arrays.images.reshape(-1, 3072), b"labels": arrays.labels.tolist()}
        as_text = {key.decode(): value for key, value in held.items()}
        (tmp_path / name).write_bytes(pickle.dumps(as_text, protocol=2))
    same(list(read_layout(tmp_path, FILES)), small)


def test_only_what_is_asked_for_is_read(layout, small):
    (layout / LAYOUTS[layout.name][1].format("data_batch_2")).unlink()
    (_, place, arrays), *others = read_layout(layout, ["test_batch"])
    assert place == str(layout / LAYOUTS[layout.name][1].format("test_batch"))
    assert not others
    assert np.array_equal(arrays.images, small["test_batch"].images)


def test_a_missing_file_is_named(layout):
    name = LAYOUTS[layout.name][1].format("data_batch_3")
    (layout / name).unlink()
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        list(read_layout(layout, FILES))
    with pytest.raises(DataError, match=f"tar.gz has no {name}: get it again"):
        list(read_layout(archive(layout), FILES))


@pytest.mark.parametrize("kept", [0, 10, 5000, -1])
def test_a_truncated_file_is_named(layout, kept):
    path = layout / LAYOUTS[layout.name][1].format("data_batch_3")
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    try:
        read = list(read_layout(layout, FILES))
    except DataError as error:
        assert path.name in str(error)  # noqa: PT017
    else:
        # An empty .bin file holds no records, and the last byte of a PNG is none of its pixels: the sums decide.
        empty = kept == 0 and layout.name.endswith("bin")
        assert empty or (kept == -1 and layout.name == "package")
        assert len(read) == len(FILES)


@pytest.mark.parametrize("kept", [0, 100, -2000])
def test_a_truncated_archive_is_named(layout, kept):
    whole = archive(layout).read_bytes()
    with pytest.raises(DataError, match=r"here cannot be read as a .tar.gz .*get it again|here is not an archive"):
        list(read_archive(io.BytesIO(whole[:kept]), "here", FILES))


def test_labels_of_another_number_are_refused(small, tmp_path):
    LAYOUTS["package"][0](tmp_path, small)
    (tmp_path / "test_lables.json").write_text("[1, 2, 3]")
    with pytest.raises(DataError, match=r"test_batch.png with test_lables.json .* 20 images have 3 labels"):
        list(read_layout(tmp_path, ["test_batch"]))


def test_a_pickle_runs_no_code(tmp_path, small):
    class Bad:
        def __reduce__(self):
            return print, ("run",)

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(Bad()))
    with pytest.raises(DataError, match=r"data_batch_1 in .* is damaged \(it holds .*print"):
        list(read_layout(tmp_path, ["data_batch_1"]))


def test_what_is_not_cifar10_is_said_to_be(tmp_path):
    with pytest.raises(DataError, match="is not CIFAR-10: it holds neither data_batch_1"):
        list(read_layout(tmp_path, FILES))
    other = tmp_path / "other"
    other.mkdir()
    (other / "readme.txt").write_text("nothing")
    with pytest.raises(DataError, match="is not an archive of CIFAR-10"):
        list(read_layout(archive(other), FILES))
