"""Make a torchvision importable whose compiled operators do not fit this torch.

PyPI's torchvision is a CUDA build. Beside a CPU build of torch its operators cannot be loaded, and its import, and with
it timm's, fails because "operator torchvision::nms does not exist". Declaring the operators is enough: layers, models
and transforms do not use them, and `torchvision.ops` still reports that they cannot be loaded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def declare_torchvision_operators() -> None:
    """Declare the operators if they cannot be loaded; to be called before torchvision is imported."""
    spec = importlib.util.find_spec("torchvision")
    if "torchvision" in sys.modules or spec is None or not spec.submodule_search_locations:
        return
    libraries = [path for path in Path(spec.submodule_search_locations[0]).glob("_C.*") if path.suffix != ".py"]
    try:
        for library in libraries:
            torch.ops.load_library(str(library))
    except OSError:
        for operator in ("nms", "qnms"):
            with contextlib.suppress(RuntimeError):  # declared already
                torch.library.define(f"torchvision::{operator}", _SCHEMA)
