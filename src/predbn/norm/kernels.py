"""The arithmetic: moments of a batch, and normalising with given statistics.

Each function has one meaning and two routes. The *plain* route is written in ordinary differentiable
operators; it is what autograd, torch.compile, torch.export, tracing and torch.func see. The *native*
route calls PyTorch's own kernels, and on a GPU ours, where nothing but the result is wanted, which is most
of the time: it accumulates in at least single precision and makes no full-size temporary.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from .statistics import Seen

_SQUARED_OFFSET_LIMIT = 16.0
_LONG_ROW = 2048
_TRITON = find_spec("triton") is not None


def dims_without_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def stats_dtype(x: Tensor) -> torch.dtype:
    """Statistics of half and bfloat16 data are kept in single precision."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def is_recorded() -> bool:
    """Whether operators are being recorded (compiled, exported, traced) rather than just run."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def _eager(x: Tensor) -> bool:
    return (
        not is_recorded()
        and type(x) is Tensor
        and x.device.type in ("cpu", "cuda")
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
    )


def _native(x: Tensor) -> bool:
    return _eager(x) and not (x.requires_grad and torch.is_grad_enabled())


def has_gpu_kernels(x: Tensor) -> bool:
    """Whether kernels of our own may be launched on it."""
    return x.is_cuda and _TRITON and _native(x)


def is_at_hand(x: Tensor) -> bool:
    """Whether its values can be had without waiting and without losing a gradient."""
    return x.is_cpu and _native(x)


def _is_half(x: Tensor) -> bool:
    return x.dim() > 2 and x.dtype in (torch.float16, torch.bfloat16)


def _is_read_once(x: Tensor) -> bool:
    """Whether these are maps that the moments of `gpu_moments` are made for."""
    return x.dim() == 4 and _is_half(x) and has_gpu_kernels(x) and x.is_contiguous(memory_format=torch.channels_last)


def moments(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel. `eps` is what will be added to the variance: it tells
    how precisely the variance of an almost constant channel has to be known."""
    if not _native(x):
        var, mean = torch.var_mean(x.to(stats_dtype(x)), dims_without_channels(x), correction=0)
        return mean, var
    if _is_read_once(x):
        from .gpu_moments import moments as read_once

        return read_once(x)
    return _moments_channels_first(x, eps) if _is_channels_first(x) else _native_moments(x)


def _is_channels_first(x: Tensor) -> bool:
    """Whether these are maps in single precision, one after another in the memory of a CPU."""
    maps = x.dim() > 2 and x.numel() > x.shape[0] * x.shape[1]
    return maps and x.dtype == torch.float32 and x.is_cpu and x.is_contiguous()


def _native_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """PyTorch's two-pass kernel. On a CPU it answers in the precision of the buffers it is given."""
    running_mean = running_var = None
    if x.device.type == "cpu" and x.dtype != stats_dtype(x):
        running_mean, running_var = torch.zeros(2, x.shape[1], dtype=stats_dtype(x))
    return torch.batch_norm_update_stats(x, running_mean, running_var, 0.0)


def _moments_channels_first(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same on channels-first data, where PyTorch's kernel runs one value at a time.

    Two vectorised reductions along contiguous memory take its place. Maps smaller than the batch are
    reduced over the batch first, position by position. Larger ones give Σx and Σx² of each row, and
    var = Σx²/count − mean², which loses digits where the mean is large beside the spread: those
    channels (mean² > 16·(var + eps)) are computed again by the two-pass kernel.
    """
    n, c = x.shape[:2]
    positions = x[0, 0].numel()
    if positions <= n:
        means, variances = (t.view(c, positions) for t in _native_moments(x.view(n, c * positions)))
        mean = means.mean(1)
        return mean, variances.add_(means.sub_(mean[:, None]).square_()).mean(1)
    example_mean, example_square = example_moments(x)
    wide_mean = example_mean.mean(0, dtype=torch.float64)
    wide_var = (example_square.mean(0, dtype=torch.float64) - wide_mean * wide_mean).clamp_(min=0)
    mean, var = wide_mean.float(), wide_var.float()
    imprecise = mean * mean > _SQUARED_OFFSET_LIMIT * (var + eps)
    if imprecise.any():
        which = imprecise.nonzero().squeeze(1)
        mean[which], var[which] = _native_moments(x.index_select(1, which))
    return mean, var


def example_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and mean square of each example and channel, [N, C] each, without a full-size temporary."""
    n, c = x.shape[:2]
    if x.dim() == 2:
        wide = x.to(stats_dtype(x))
        return wide, wide * wide
    spatial = list(range(2, x.dim()))
    if _native(x) and x.dtype == torch.float32 and x.is_contiguous():
        positions = x[0, 0].numel()
        rows = x.view(-1, _row_length(positions))
        squares = torch.linalg.vector_norm(rows, dim=1).square_().view(n, c, -1).sum(2)
        return x.mean(spatial), squares.div_(positions)
    var, mean = torch.var_mean(x.to(stats_dtype(x)), spatial, correction=0)
    return mean, var + mean * mean


def example_means(x: Tensor) -> Tensor:
    """Mean of each example and channel, [N, C]."""
    return x.to(stats_dtype(x)) if x.dim() == 2 else x.mean(list(range(2, x.dim())), dtype=stats_dtype(x))


def group_moments(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel over every `group` examples, [N / group, C] each: those of the
    examples pooled, var = mean of the variances + variance of the means."""
    if x.dim() == 2:
        var, mean = torch.var_mean(x.to(stats_dtype(x)).unflatten(0, (-1, group)), 1, correction=0)
        return mean, var
    if _is_read_once(x):
        from .gpu_moments import moments as read_once

        return read_once(x, group)
    var, mean = torch.var_mean(x.to(stats_dtype(x)), list(range(2, x.dim())), correction=0)
    between, centre = torch.var_mean(mean.unflatten(0, (-1, group)), 1, correction=0)
    return centre, between + var.unflatten(0, (-1, group)).mean(1)


def _row_length(positions: int) -> int:
    """Short rows, then a sum over rows, round off less than one long row."""
    while positions > _LONG_ROW and positions % 2 == 0:
        positions //= 2
    return positions


def normalise(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """weight · (x − mean) / √(var + eps) + bias, in the dtype and memory format of x. Everything else
    is in `stats_dtype(x)`."""
    if mean.dim() == 2 or mean.requires_grad or var.requires_grad:
        return _scale_and_shift(x, mean, var, weight, bias, eps)
    if x.is_cuda and x.dim() > 2 and _native(x):
        return torch.batch_norm_elemt(x, weight, bias, mean, torch.rsqrt(var + eps), eps)
    return F.batch_norm(x, mean, var, weight, bias, False, 0.0, eps)


def _scale_and_shift(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """The same for statistics of each example, or ones that gradients flow through: PyTorch's kernel
    takes neither."""
    scale = torch.rsqrt(var + eps)
    if weight is not None:
        scale = scale * weight
    shift = -mean * scale
    if bias is not None:
        shift = shift + bias
    shape = [*scale.shape, *[1] * (x.dim() - 2)]
    if x.is_cuda and _is_half(x) and _native(x) and not torch.is_grad_enabled():
        return torch.addcmul(shift.view(shape), x, scale.view(shape), out=torch.empty_like(x))
    return torch.addcmul(shift.view(shape), x.to(scale.dtype), scale.view(shape)).to(x.dtype)


def batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Seen]:
    """Normalise a batch with its own statistics, and say which they were.

    PyTorch's training kernel (on a GPU cuDNN's, which wants the affine parameters in single precision)
    computes and applies them at once, with the right gradients. Where it is slow, on channels-first maps
    on a CPU, and where it must not be called, this is `moments` and `normalise`.
    """
    with_gradients = x.requires_grad and torch.is_grad_enabled()
    fused = weight is not None and bias is not None and (with_gradients or not _is_channels_first(x))
    if fused and _eager(x):
        y, mean, inverse_std, *_ = torch._batch_norm_impl_index(
            x, weight, bias, None, None, True, 0.0, eps, torch.backends.cudnn.enabled
        )
        return y, Seen(mean, inverse_std, eps)
    mean, var = moments(x, eps)
    return normalise(x, mean, var, weight, bias, eps), Seen(mean, var)
