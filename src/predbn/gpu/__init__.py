"""Optional: fast code for GPUs beside `predbn.norm`, and CUDA graphs.

    backend.py     `TritonBackend`: what kernels compute for the method, in eager mode and in graphs of torch.compile
    sums.py        Σx and Σx² of the batch or of each example, the one kernel that reads all values; moments of a batch
    pooling.py     moments of segments, and of examples with bounded influence, from the sums of each example
    quantiles.py   its medians and quantiles
    normalise.py   the normalised values
    launch.py      launches with little work for the host
    graphs.py      record a function as a CUDA graph

The kernels are written in Triton, which is part of PyTorch for CUDA; without it no backend is registered. Everything
they compute is also written in PyTorch in `predbn.norm`, which is what a CPU, gradients and exported graphs use, and
what the tests compare with. `predbn.norm` imports this package when it first sees a tensor on a GPU, unless the
environment variable PREDBN_BACKEND says otherwise.
"""

import os as _os
from importlib.util import find_spec as _find_spec

from predbn.norm import register as _register_backend

from .capture import CapturedModel, capture, capture_padded
from .graphs import CudaGraphRecorder, is_recording

__all__ = ["CapturedModel", "CudaGraphRecorder", "capture", "capture_padded", "is_recording"]


def _register() -> None:
    is_chosen = _os.environ.get("PREDBN_BACKEND", __name__) == __name__
    if is_chosen and _find_spec("triton") is not None:
        from .backend import IS_INTERPRETED, TritonBackend

        for device_type in ("cuda", "cpu") if IS_INTERPRETED else ("cuda",):
            _register_backend(device_type, TritonBackend())


_register()
