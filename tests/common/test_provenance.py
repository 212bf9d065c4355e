from __future__ import annotations

import subprocess

from predbn.common import git_commit


def git(folder, *arguments):
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_of_the_checkout_that_contains_the_file(tmp_path):
    tracked, installed = tmp_path / "tracked.py", tmp_path / "installed.py"
    tracked.write_text("")
    assert git_commit(tracked) is None
    git(tmp_path, "init")
    git(tmp_path, "add", "tracked.py")
    git(tmp_path, "commit", "-m", "first")
    installed.write_text("")
    assert git_commit(tracked) == git(tmp_path, "rev-parse", "HEAD")
    assert git_commit(installed) is None
    tracked.write_text("changed")
    assert git_commit(tracked) == git(tmp_path, "rev-parse", "HEAD") + "-dirty"
    assert git_commit(tmp_path / "absent" / "x.py") is None
