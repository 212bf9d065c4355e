"""The cache folder, devices by name, and where a result comes from."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from predbn.common import DeviceError, cache_folder, git_commit, hardware_of, package_versions, parse_device


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PREDBN_CACHE": "/there", "XDG_CACHE_HOME": "/xdg"}, "/there"),
        ({"PREDBN_CACHE": "~/there"}, "/home/me/there"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/predbn"),
        ({}, "/home/me/.cache/predbn"),
    ],
)
def test_the_cache_folder_is_that_of_the_platform_unless_the_user_sets_one(environment, expected, monkeypatch):
    for name in ("PREDBN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **environment}.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("name", "device"), [("auto", "cuda"), ("cpu", "cpu"), ("cuda", "cuda"), ("cuda:1", "cuda:1")])
def test_with_gpus(name, device):
    assert parse_device(name) == torch.device(device)


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_too_many():
    with pytest.raises(DeviceError, match="PyTorch finds no cuda:2 here: use cpu or auto"):
        parse_device("cuda:2")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu():
    assert parse_device("auto") == parse_device("cpu") == torch.device("cpu")
    with pytest.raises(DeviceError, match="PyTorch finds no cuda here"):
        parse_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "meta", "cpu:1", "cuda:x", "cuda:-1", "CUDA", ""])
def test_unknown_names(name):
    with pytest.raises(DeviceError, match=f"there is no device '{name}': use cpu, cuda, cuda:1 or auto"):
        parse_device(name)


def git(folder, *arguments) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_that_of_the_checkout_that_tracks_the_file(tmp_path):
    tracked, untracked = tmp_path / "tracked.py", tmp_path / "untracked.py"
    tracked.write_text("")
    assert git_commit(tracked) is None
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "x")
    untracked.write_text("")
    assert git_commit(tracked) == git(tmp_path, "rev-parse", "HEAD")
    assert git_commit(untracked) is None
    tracked.write_text("changed")
    assert git_commit(tracked) == git(tmp_path, "rev-parse", "HEAD") + "-dirty"
    assert git_commit(tmp_path / "absent" / "x.py") is None


def test_versions_and_hardware():
    assert package_versions()["torch"] == torch.__version__
    assert {"machine", "system", "cpu"} <= set(hardware_of("cpu"))
    assert "gpu" not in hardware_of("cpu")
