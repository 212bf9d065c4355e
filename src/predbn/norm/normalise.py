"""Normalise a batch with given statistics: weight · (x − mean) / √(var + eps) + bias."""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import backend_of
from .moments import as_rows, stats_dtype
from .segments import Segments
from .statistics import Statistics
from .tracing import is_exporting, is_native, is_transformed


def normalise(
    x: Tensor,
    statistics: Statistics,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    segments: Segments | None = None,
) -> Tensor:
    """weight · (x − mean) / √(var + eps) + bias, in the dtype and memory format of x.

    Statistics are [C], or [S, C] with segments. An example of the segments
    is one or several consecutive rows of x. Without eps, a channel without variance gives `bias`.
    """
    backend = backend_of(x.device.type)
    if backend is not None:
        y = backend.normalise(x, statistics, weight, bias, eps, segments)
        if y is not None:
            return y
    dtype = stats_dtype(x)
    weight, bias = (None if t is None else t.to(dtype) for t in (weight, bias))
    mean, var = (t.to(x.device, dtype) for t in statistics)
    if segments is not None and mean.dim() == 2 and segments.group is None:
        mean, var = segments.repeat(mean), segments.repeat(var)
    if eps == 0:
        var = var.masked_fill(var.detach() <= (32 * torch.finfo(var.dtype).eps * mean.detach()) ** 2, torch.inf)
    # PyTorch's kernels support neither statistics of segments nor gradients of statistics. A graph that was exported
    # without gradients may be run with them; torch.compile makes another one then.
    is_compiled_again = torch.compiler.is_dynamo_compiling() and not is_exporting()
    has_gradients = mean.requires_grad or var.requires_grad
    if mean.dim() == 2 or has_gradients or (is_transformed(mean) and not is_compiled_again):
        return _scale_and_shift(x, mean, var, weight, bias, eps)
    if is_native(x):
        y, *_ = torch._batch_norm_impl_index(x, weight, bias, mean, var, False, 0.0, eps, torch._C._get_cudnn_enabled())
        return y
    # Not F.batch_norm: a module around this layer whose own calls of it are replaced must not see ours.
    return torch.ops.aten.batch_norm(  # type: ignore[no-any-return]
        x, weight, bias, mean, var, False, 0.0, eps, torch.backends.cudnn.enabled
    )


def _scale_and_shift(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """x · scale + shift with scale and shift [C], or [R, C] for N / R consecutive rows each."""
    scale = torch.rsqrt(var + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else torch.addcmul(bias, mean, scale, value=-1)
    rows_last = as_rows(x) if scale.dim() == 2 else None
    if rows_last is not None:
        rows = rows_last.view(len(scale), -1, x.shape[1]).to(scale.dtype)
        y = torch.addcmul(shift[:, None], rows, scale[:, None]).to(x.dtype)
        # Maps of one value are in both formats. With the strides of contiguous ones the next convolution need not copy
        # its weight, which takes longer than all else here.
        return y.view(x.shape) if x.is_contiguous() else y.as_strided(x.shape, x.stride())
    if scale.dim() == 2 and scale.shape[0] != x.shape[0]:
        repeats = x.shape[0] // scale.shape[0]  # may be a symbol
        scale, shift = (t[:, None].expand(-1, repeats, -1).flatten(0, 1) for t in (scale, shift))
    shape = [*scale.shape, *[1] * (x.dim() - 2)]
    return torch.addcmul(shift.view(shape), x.to(scale.dtype), scale.view(shape)).to(x.dtype)
