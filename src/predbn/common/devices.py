"""Devices by name."""

from __future__ import annotations

import torch

from .errors import DeviceError


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
