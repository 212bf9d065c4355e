"""Prediction-time batch norm for ONNX files that someone else exported.

`adapt("m.onnx", "out.onnx")` writes a copy whose batch norm layers use the statistics of the batch being predicted, and
`describe` says what a file holds. Needs onnx, onnx-ir and onnxruntime: ``pip install predbn[onnx]``.
"""

from predbn.common import needs_extra

with needs_extra("onnx"):
    import onnx as _onnx  # noqa: F401
    import onnx_ir as _onnx_ir  # noqa: F401

from .adapt import adapt
from .describe import Description, LayerDescription, describe

__all__ = ["Description", "LayerDescription", "adapt", "describe"]
