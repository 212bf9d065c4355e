"""Make PyPI's torchvision, a CUDA build, importable with a CPU build of torch.

Its import, and therefore timm's, fails because a CPU torch lacks two operators. Declaring their schemas is enough,
since nothing here calls them.
"""

from __future__ import annotations

import contextlib
import importlib.util

import torch


def declare_missing_operators() -> None:
    if torch.cuda.is_available() or importlib.util.find_spec("torchvision") is None:
        return
    for operator in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", schema)
