"""PyPI's torchvision beside a CPU torch.

It is a CUDA build: its import, and so timm's, stops at two operators that a CPU torch does not have.
Declaring their schemas is enough, as nothing here calls them.
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
