"""Which code, packages and hardware a result comes from."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_DESCRIBE = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
_PACKAGES = ("predbn", "torch", "numpy", "scipy", "opencv-python-headless", "Pillow")


def git_commit(file: Path = Path(__file__)) -> str | None:
    """The commit of the git checkout that tracks `file`, with "-dirty" if it has changes; None if there is none."""
    git = ["git", "-C", str(file.parent)]
    try:
        for arguments in (["ls-files", "--error-unmatch", file.name], _DESCRIBE):
            done = subprocess.run([*git, *arguments], capture_output=True, text=True, check=True, timeout=10)
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
