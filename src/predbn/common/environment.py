"""The environment of a run: the cache folder, devices, and which code, packages and hardware a result comes from."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .errors import DeviceError

_DESCRIBE = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
_PACKAGES = ("predbn", "torch", "numpy", "scipy", "opencv-python-headless", "Pillow")


def cache_folder() -> Path:
    """`PREDBN_CACHE` if it is set, otherwise the folder `predbn` in the user's cache folder."""
    chosen = os.environ.get("PREDBN_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path

    return user_cache_path("predbn", appauthor=False, opinion=False)


def parse_device(name: str) -> torch.device:
    """The device of a name: "cpu", "cuda", "cuda:1", or "auto" for the GPU if there is one, otherwise the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not (kind == "cuda" and number.isdecimal())):
        raise DeviceError(f"there is no device {name!r}: use cpu, cuda, cuda:1 or auto.")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise DeviceError(f"PyTorch finds no {name} here: use cpu or auto.")
    return torch.device(name)


def git_commit(file: Path = Path(__file__)) -> str | None:
    """The commit of the git checkout that tracks `file`, with "-dirty" if it has changes; None if there is none."""
    git = ["git", "-C", str(file.parent)]
    try:
        for arguments in (["ls-files", "--error-unmatch", file.name], _DESCRIBE):
            # S603: fixed arguments, and the path of this file.
            done = subprocess.run(  # noqa: S603
                [*git, *arguments], capture_output=True, text=True, check=True, timeout=10
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def package_versions() -> dict[str, str]:
    """The versions of the packages that results depend on; one that is not installed is left out."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def hardware_of(device: str) -> dict[str, Any]:
    """What a run on this device computes with."""
    hardware: dict[str, Any] = {"machine": platform.machine(), "system": platform.system()}
    if torch.device(device).type == "cuda":
        hardware["gpu"] = torch.cuda.get_device_name(device)
    return {**hardware, "cpu": torch.backends.cpu.get_cpu_capability()}
