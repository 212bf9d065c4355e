"""What may be done with a tensor where it is: in eager mode, in a graph, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor


def is_tracing() -> bool:
    """Whether operators are being recorded into a graph (compiled, exported, traced) rather than just run."""
    return torch.compiler.is_compiling() or torch._C._is_tracing()


def is_exporting() -> bool:
    """Whether a graph is being exported. PyTorch's own function is also true in torch.compile, up to 2.11."""
    return torch.compiler._is_exporting_flag


def is_transformed(x: Tensor) -> bool:
    """Whether the values belong to a transformation (vmap, jvp, a graph) and mean nothing outside of it."""
    return is_tracing() or type(x) is not Tensor or torch._C._functorch.is_functorch_wrapped_tensor(x)


def is_eager(x: Tensor) -> bool:
    return (x.is_cpu or x.is_cuda) and not is_transformed(x)


def needs_gradients(*tensors: Tensor | None) -> bool:
    """Whether gradients with respect to one of the tensors will be computed."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def is_native(x: Tensor) -> bool:
    """Whether operators without derivatives may be used: only the result is needed."""
    return is_eager(x) and not needs_gradients(x)


def is_readable(x: Tensor) -> bool:
    """Whether Python can read the values without a synchronisation and without losing a gradient."""
    return x.is_cpu and is_native(x)
