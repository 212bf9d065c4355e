"""What may be done with a tensor where it is: in eager mode, in a graph, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

F = TypeVar("F", bound=Callable[..., Any])


def runs_around_graphs(hook: F) -> F:
    """torch.compile runs this hook of a model around its graph, where there are threads, locks and exceptions.

    Only if the whole call is part of a larger graph, it is traced, which `torch.compiler.disable` would refuse.
    """
    set_code_exec_strategy(hook.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    return hook


def is_constant_in_graphs(function: F) -> F:
    """torch.compile calls this function instead of tracing it, and keeps the result.

    It is `torch.compiler.assume_constant_result`, which would import the compiler into every process.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_tracing() -> bool:
    """Whether this thread records operators into a graph (compiled, exported, traced) rather than just runs them.

    Export with strict=False and `make_fx`, which `torch.func.linearize` uses, run Python itself, in a dispatch mode of
    their thread. PyTorch's flag is true in all threads while one compiles or exports.
    """
    if torch.compiler.is_dynamo_compiling() or torch._C._is_tracing():
        return True
    if torch._C._len_torch_dispatch_stack() == 0:
        return False
    proxy_mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    return torch.compiler._is_compiling_flag or proxy_mode is not None


def is_exporting() -> bool:
    """Whether a graph is being exported. PyTorch's own function is also true in torch.compile, up to 2.11."""
    return torch.compiler._is_exporting_flag and is_tracing()


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
    return is_eager(x) and not (x.requires_grad and torch.is_grad_enabled())


def is_readable(x: Tensor) -> bool:
    """Whether Python can read the values without a synchronisation and without losing a gradient."""
    return x.is_cpu and is_native(x)
