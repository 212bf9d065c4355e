"""Which code, which packages and which hardware a result comes from."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

__all__ = ["commit", "hardware_of", "versions"]

_DESCRIBE = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
_PACKAGES = ("predbn", "torch", "numpy", "scipy", "opencv-python-headless", "Pillow")


def commit(here: Path = Path(__file__)) -> str | None:
    """The commit of the checkout that this file belongs to, with "-dirty" if it was changed; None outside of one."""
    git = ["git", "-C", str(here.parent)]
    try:
        for arguments in (["ls-files", "--error-unmatch", here.name], _DESCRIBE):
            found = subprocess.run([*git, *arguments], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def versions() -> dict[str, str]:
    """The versions of the packages that measured values depend on."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware_of(device: str) -> dict[str, Any]:
    """What this process computes on."""
    known: dict[str, Any] = {"machine": platform.machine(), "system": platform.system()}
    if torch.device(device).type == "cuda":
        known["gpu"] = torch.cuda.get_device_name(device)
    return {**known, "cpu": torch.backends.cpu.get_cpu_capability()}
