"""The cache folder, devices by name, and where a result comes from."""

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


@pytest.mark.parametrize(
    ("gpus", "name", "device"),
    [
        *((2, name, name) for name in ("cpu", "cuda", "cuda:1")),
        (2, "auto", "cuda"),
        (0, "auto", "cpu"),
        (0, "cpu", "cpu"),
    ],
)
def test_devices_by_name(gpus, name, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert parse_device(name) == torch.device(device)
    for missing in ("cuda:2", "cuda") if not gpus else ("cuda:2",):
        with pytest.raises(DeviceError, match=f"PyTorch finds no {missing} here: use cpu"):
            parse_device(missing)


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
