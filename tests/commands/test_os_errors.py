"""Errors of the operating system as sentences."""

import errno
import os

import pytest

from predbn.commands.os_errors import explain


@pytest.mark.parametrize(
    ("number", "action", "remedy"),
    [
        (errno.ENOSPC, "written", "free some space"),
        (errno.EDQUOT, "written", "free some space"),
        (errno.EROFS, "written", "choose a path that can be written to"),
        (errno.EACCES, "opened", "change its permissions"),
        (errno.ENOENT, "opened", "check the path"),
        (errno.EIO, "opened", "check the disk or the network"),
        (errno.ETXTBSY, "opened", "run the same command again"),
    ],
)
def test_a_sentence_names_the_path_the_reason_and_a_remedy(number, action, remedy):
    sentence = explain(OSError(number, os.strerror(number), "a/b.npy"))
    assert sentence.startswith(f"a/b.npy cannot be {action} ({os.strerror(number)}): ")
    assert remedy in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_of_two_paths_the_target_is_named():
    assert explain(OSError(errno.EACCES, "Permission denied", "x.part", None, "x")).startswith("x cannot be opened")


@pytest.mark.parametrize(
    "text", ["1024 requested and 0 written", "[Errno 28] Error writing bytes to file.\nDetail: full"]
)
def test_errors_of_libraries_without_a_path_give_a_sentence_too(text):
    sentence = explain(OSError(text))
    assert sentence.startswith(text.splitlines()[0].rstrip("."))
    assert "\n" not in sentence
    assert "disk" in sentence
