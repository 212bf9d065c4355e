"""Where a result comes from."""

from __future__ import annotations

import subprocess

import torch

from predbn.common import git_commit, hardware_of, package_versions


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
