"""Let `import torchvision`, and so `import timm`, work beside a CPU build of torch.

PyPI's torchvision is a CUDA build. Beside a CPU build of torch its operators cannot be loaded, and its import, and with
it timm's, fails because "operator torchvision::nms does not exist". Declaring the operators is enough: layers, models
and transforms do not use them, and `torchvision.ops` still reports that they cannot be loaded.

`make test` puts this file into its environment, with a .pth file that imports it when Python starts, so that timm can
be imported there as anywhere else. Only the standard library is imported until somebody imports torchvision.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _BeforeTorchvision:
    """An import hook that finds nothing."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "torchvision" and _BeforeTorchvision in sys.meta_path:
            sys.meta_path.remove(_BeforeTorchvision)  # type: ignore[arg-type]
            _declare_operators()


def _declare_operators() -> None:
    """Declare the operators if they cannot be loaded."""
    import torch

    spec = find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return
    libraries = [path for path in Path(spec.submodule_search_locations[0]).glob("_C.*") if path.suffix != ".py"]
    try:
        for library in libraries:
            torch.ops.load_library(str(library))
    except OSError:
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", _SCHEMA)


sys.meta_path.insert(0, _BeforeTorchvision)  # type: ignore[arg-type]
