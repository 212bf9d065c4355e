"""Shared set-up.

PyPI's torchvision is a CUDA build: beside a CPU torch its import stops at two operators that are not
there, and timm imports it. Declaring their schemas is enough, nothing here calls them.
"""

from __future__ import annotations

import contextlib
import importlib.metadata

import pytest
import torch
from hypothesis import settings

settings.register_profile("predbn", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("predbn")

with contextlib.suppress(importlib.metadata.PackageNotFoundError):
    importlib.metadata.version("torchvision")
    if not torch.cuda.is_available():
        for operator in ("nms", "qnms"):
            with contextlib.suppress(RuntimeError):
                torch.library.define(
                    f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )


@pytest.fixture(autouse=True)
def _deterministic() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(2)
