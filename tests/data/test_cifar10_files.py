import io
import pickle
import tarfile

import pytest

from predbn.data import DataError
from predbn.data.cifar10_files import FILES, read_archive, read_files

from .official import LAYOUTS, archive


def test_a_missing_file_is_named(layout):
    name = LAYOUTS[layout.name][1].format("data_batch_3")
    (layout / name).unlink()
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        list(read_files(layout, FILES))
    with pytest.raises(DataError, match=f"tar.gz has no {name}: get it again"):
        list(read_files(archive(layout), FILES))


@pytest.mark.parametrize("length", [0, 100, -2000])
def test_a_truncated_archive_is_named(layout, length):
    whole = archive(layout).read_bytes()
    with pytest.raises(DataError, match=r"here cannot be read as a .tar.gz .*get it again|here is not an archive"):
        list(read_archive(io.BytesIO(whole[:length]), "here", FILES))


def test_another_number_of_labels_is_an_error(small, tmp_path):
    LAYOUTS["package"][0](tmp_path, small)
    (tmp_path / "test_lables.json").write_text("[1, 2, 3]")
    with pytest.raises(DataError, match=r"test_batch.png is damaged: 20 images have 3 labels"):
        list(read_files(tmp_path, ["test_batch"]))


def test_a_pickle_runs_no_code(tmp_path):
    class Bad:
        def __reduce__(self):
            return print, ("run",)

    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(Bad()))
    with pytest.raises(DataError, match=r"data_batch_1 is damaged \(it holds .*print"):
        list(read_files(tmp_path, ["data_batch_1"]))


def test_other_folders_and_archives_are_errors(tmp_path):
    with pytest.raises(DataError, match="is not CIFAR-10: it holds neither data_batch_1"):
        list(read_files(tmp_path, FILES))
    other = tmp_path / "other"
    other.mkdir()
    (other / "readme.txt").write_text("nothing")
    with pytest.raises(DataError, match="is not an archive of CIFAR-10"):
        list(read_files(archive(other), FILES))


def test_what_is_read_from_an_archive_is_limited(tmp_path, monkeypatch):
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("data_batch_1", "data_batch_2"):
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = 1 << 20
            tar.addfile(entry, io.BytesIO(bytes(1 << 20)))
    monkeypatch.setattr("predbn.data.reading.MAX_BYTES", (2 << 20) - 1)
    with pytest.raises(DataError, match=r"data_batch_2 in .*bomb.tar.gz, .*takes 2,097,152 bytes"):
        list(read_files(path, FILES))
    (tmp_path / "data_batch_1").write_bytes(bytes(3 << 20))
    with pytest.raises(DataError, match=r"data_batch_1 cannot be read \(it takes 3,145,728 bytes"):
        list(read_files(tmp_path, FILES))
