"""Errors of the operating system as one sentence (which file, what is wrong, and what to do), or with a traceback."""

from __future__ import annotations

import errno
import re

DEBUG = "PREDBN_DEBUG"
"""The environment variable that --debug sets: errors keep their tracebacks."""

_AGAIN = "and run the same command again"
_FULL = f"free some space, or choose another disk, {_AGAIN}"
_PERMISSION = "change its permissions, or choose another path"
_REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "choose a file system that takes larger files",
    errno.EROFS: "choose a path that can be written to",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of the path is a file, so choose another path",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "remove it, or choose another path",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "check the links in the path",
    errno.EMFILE: f"raise the limit of open files with `ulimit -n`, {_AGAIN}",
    errno.EIO: f"check the disk or the network, {_AGAIN}",
    errno.ESTALE: f"check the network file system, {_AGAIN}",
}

_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def explain(error: OSError) -> str:
    """The sentence for an error that a file, a folder or the disk has caused."""
    path = error.filename if error.filename2 is None else error.filename2
    reason = error.strerror or _first_line(error)
    number = errno.ENOSPC if _is_short_write(error) else error.errno
    remedy = _REMEDIES.get(number or 0, f"check it, {_AGAIN}" if path else f"check the disk, {_AGAIN}")
    action = "written" if number in _WRITING else "opened"
    where = f"{path} cannot be {action} ({reason})" if path else reason
    return f"{where}: {remedy}."


def _is_short_write(error: OSError) -> bool:
    """Whether numpy has written only a part of an array, which happens when the disk is full; it gives no number."""
    return error.errno is None and re.search(r"\d+ requested and \d+ written", str(error)) is not None


def _first_line(error: OSError) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
