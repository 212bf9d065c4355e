"""The arithmetic: moments of a batch, and normalising with given statistics.

Each function has one meaning and two routes. The *plain* route is written in ordinary differentiable operators; it is
what autograd, torch.compile, torch.export, tracing and torch.func see. The *native* route calls PyTorch's own kernels,
and on a GPU ours. It is taken if only the result is needed, which is most of the time: it accumulates in at least
single precision and makes no full-size temporary.
"""

from __future__ import annotations

import math
import os
import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from .gpu import operators
from .statistics import LazyStatistics

_SQUARED_OFFSET_LIMIT = 4.0
_MIN_PART_LENGTH, _MAX_PART_LENGTH = 100, 800
_MAX_PART_SIZE = 2**18
PLAIN = torch.Tensor, torch.nn.Parameter
_KERNEL_DTYPES = torch.float16, torch.bfloat16, torch.float32
_LARGEST_SMALL_MAP = 32
_LEAST_NATIVE_MAP = 16
"""For maps with fewer values, addcmul is faster."""
_FEW_CHANNELS, _MANY_VALUES = 32, 2**16
"""cuDNN's kernel for training has few blocks for each channel: with so few channels and so many values for each of
them, most of a GPU is idle."""
_HAS_TRITON = find_spec("triton") is not None and os.environ.get("PREDBN_KERNELS") != "0"
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Triton runs kernels on the CPU, for tests."""


def dims_without_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def stats_dtype(x: Tensor) -> torch.dtype:
    """Statistics of half and bfloat16 data are kept in single precision."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def is_tracing() -> bool:
    """Whether operators are being recorded into a graph (compiled, exported, traced) rather than just run."""
    return torch.compiler.is_compiling() or torch._C._is_tracing()


def is_exporting() -> bool:
    """Whether a graph is being exported. PyTorch's own function is also true in torch.compile, up to 2.11."""
    return torch.compiler._is_exporting_flag


def is_transformed(x: Tensor) -> bool:
    """Whether the values belong to a transformation (vmap, jvp, a graph) and mean nothing outside of it."""
    return is_tracing() or type(x) is not Tensor or torch._C._functorch.is_functorch_wrapped_tensor(x)


def current_cuda_stream(x: Tensor) -> int:
    """The address of the current CUDA stream of the device of a tensor; 0 on a CPU."""
    return torch._C._cuda_getCurrentRawStream(x.get_device()) if x.is_cuda else 0


def _is_eager(x: Tensor) -> bool:
    return (x.is_cpu or x.is_cuda) and not is_transformed(x)


def convert(dtype: torch.dtype, t: Tensor | None) -> Tensor | None:
    """A parameter or buffer in the dtype of the statistics. `float` takes half as long as `to`."""
    if t is None or t.dtype == dtype:
        return t
    return t.float() if dtype == torch.float32 else t.to(dtype)


def _is_native(x: Tensor) -> bool:
    """Whether the native route may be taken."""
    return _is_eager(x) and not needs_gradients(x)


def can_use_triton(x: Tensor) -> bool:
    """Whether our own GPU kernels may be launched on a tensor."""
    return (x.is_cuda or IS_INTERPRETED) and _HAS_TRITON and _is_native(x) and _can_be_built(x.device)


def can_use_layer_kernels(x: Tensor) -> bool:
    """Whether the kernels of a whole layer may be: they take dense tensors in channels_last or not."""
    if not can_use_triton(x) or x.dtype not in _KERNEL_DTYPES:
        return False
    return operators.is_dense(x)


def readable_without_sync(x: Tensor) -> bool:
    """Whether Python can read the values without waiting for a device and without losing a gradient."""
    return x.is_cpu and _is_native(x)


def can_be_read_by_kernels(parameter: Tensor, x: Tensor) -> bool:
    """Whether the kernels may read a parameter or buffer: one value after the other, and without gradients."""
    if needs_gradients(parameter):
        return False
    is_plain = type(parameter) in PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(parameter)
    return is_plain and parameter.device == x.device and parameter.is_contiguous()


def can_use_operators(x: Tensor) -> bool:
    """Whether the operators of `gpu/operators.py` may be called: in eager mode and in compiled graphs."""
    if not (x.is_cuda or IS_INTERPRETED) or not _HAS_TRITON or x.dtype not in _KERNEL_DTYPES:
        return False
    if not torch.compiler.is_dynamo_compiling():
        return can_use_triton(x)
    return not is_exporting() and not needs_gradients(x) and not _broken_devices


def can_mix_in_graph(x: Tensor) -> bool:
    """Whether one operator may compute the moments of x and what a strategy mixes them with, in a compiled graph."""
    return torch.compiler.is_dynamo_compiling() and x.dim() > 2 and can_use_operators(x)


def can_fuse(x: Tensor) -> bool:
    """Whether a convolution of x in a compiled graph may be one of `gpu/conv_operators.py`."""
    is_supported = (x.is_cuda or IS_INTERPRETED) and x.dtype in (torch.float16, torch.bfloat16)
    return is_supported and _HAS_TRITON and not _broken_devices


_broken_devices: set[torch.device] = set()


@cache
def _can_be_built(device: torch.device) -> bool:
    """Whether kernels can be built for a device, which needs a compiler and a GPU that Triton supports."""
    from .gpu.launch import launch_smallest_kernel

    try:
        launch_smallest_kernel(device)
    except Exception as error:  # Triton raises many kinds
        _broken_devices.add(device)
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        warnings.warn(
            f"the GPU kernels of predbn cannot be built here ({reason}), so that strategies other than 'batch' take "
            "several times as long; the results are the same. PREDBN_KERNELS=0 turns them off without this warning",
            stacklevel=2,
        )
        return False
    return True


def is_being_captured(x: Tensor) -> bool:
    """Whether a CUDA graph is being recorded, in which nothing can be read, timed or built."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _is_half_precision_map(x: Tensor) -> bool:
    return x.dim() > 2 and x.dtype in (torch.float16, torch.bfloat16)


def _can_use_gpu_moments(x: Tensor) -> bool:
    """Whether our kernel is faster than PyTorch's, or than what torch.compile makes."""
    if x.dim() < 3 or not can_use_operators(x):
        return False
    is_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return is_transformed(x) or (_is_half_precision_map(x) and is_last)


def _moments_by_kernel(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    if is_transformed(x):
        found = operators.moments(x, groups)
    else:
        from .gpu.sums import moments as run  # an operator takes longer to call

        found = run(x, groups)
    return found[0], found[1]


def moments(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel.

    `eps` is what will be added to the variance: it tells how precisely the variance of an almost constant channel has
    to be known.
    """
    if _can_use_gpu_moments(x):
        mean, var = _moments_by_kernel(x, 1)
        return mean[0], var[0]
    if not _is_native(x):
        var, mean = torch.var_mean(x.to(stats_dtype(x)), dims_without_channels(x), correction=0)
        return mean, var
    return _moments_channels_first(x, eps) if _is_channels_first(x) else _native_moments(x)


def _is_channels_first(x: Tensor) -> bool:
    """Whether these are contiguous single-precision maps on a CPU."""
    if not (x.is_cpu and x.dtype == torch.float32 and x.dim() > 2 and x.is_contiguous()):
        return False
    return x.numel() > x.shape[0] * x.shape[1]


def _native_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """PyTorch's two-pass kernel. On a CPU its results have the precision of the buffers it is given."""
    running_mean = running_var = None
    if x.device.type == "cpu" and x.dtype != stats_dtype(x):
        running_mean, running_var = torch.zeros(2, x.shape[1], dtype=stats_dtype(x))
    return torch.batch_norm_update_stats(x, running_mean, running_var, 0.0)


def _moments_channels_first(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`moments` of channels-first data, for which PyTorch's kernel processes one value at a time.

    Two vectorised reductions along contiguous memory take its place. Maps smaller than the batch are reduced over the
    batch first, position by position. Larger ones give Σx and Σx² of each row, and var = Σx²/count − mean². That loses
    digits if the mean is large compared to the spread: those channels (mean² > 4·(var + eps)) are computed again by
    the two-pass kernel.
    """
    n, c = x.shape[:2]
    positions = x[0, 0].numel()
    if positions <= n:
        means, variances = (t.view(c, positions) for t in _native_moments(x.view(n, c * positions)))
        mean = means.mean(1)
        return mean, variances.add_(means.sub_(mean[:, None]).square_()).mean(1)
    example_mean, example_square = example_moments(x)
    mean64 = example_mean.mean(0, dtype=torch.float64)
    var64 = (example_square.mean(0, dtype=torch.float64) - mean64 * mean64).clamp_(min=0)
    mean, var = mean64.float(), var64.float()
    imprecise = mean * mean > _SQUARED_OFFSET_LIMIT * (var + eps)
    if imprecise.any():
        channels = imprecise.nonzero().squeeze(1)
        mean[channels], var[channels] = _native_moments(x.index_select(1, channels))
    return mean, var


def example_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and mean square of each example and channel, [N, C] each, without a full-size temporary."""
    n, c = x.shape[:2]
    if x.dim() == 2:
        wide = x.to(stats_dtype(x))
        return wide, wide * wide
    spatial = list(range(2, x.dim()))
    if _is_native(x) and x.dtype == torch.float32 and x.is_contiguous():
        positions = x[0, 0].numel()
        mean, square = _sums_of_rows(x.view(n * c, positions))
        return mean.div_(positions).view(n, c), square.div_(positions).view(n, c)
    var, mean = torch.var_mean(x.to(stats_dtype(x)), spatial, correction=0)
    return mean, var + mean * mean


def example_means(x: Tensor) -> Tensor:
    """Mean of each example and channel, [N, C]."""
    return x.to(stats_dtype(x)) if x.dim() == 2 else x.mean(list(range(2, x.dim())), dtype=stats_dtype(x))


def group_moments(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel over every `group` examples, [N / group, C] each.

    The examples of a group are pooled: var = mean of their variances + variance of their means. In an exported graph
    they are repeated for each example, [N, C]: torch.export takes N / group for a size other than 1.
    """
    if is_exporting():
        return group_means_and_variances(*example_means_and_variances(x), group)
    if x.dim() == 2:
        var, mean = torch.var_mean(x.to(stats_dtype(x)).unflatten(0, (-1, group)), 1, correction=0)
        return mean, var
    if _can_use_gpu_moments(x):
        return _moments_by_kernel(x, x.shape[0] // group)
    var, mean = torch.var_mean(x.to(stats_dtype(x)), list(range(2, x.dim())), correction=0)
    between, group_mean = torch.var_mean(mean.unflatten(0, (-1, group)), 1, correction=0)
    return group_mean, between + var.unflatten(0, (-1, group)).mean(1)


def stream_moments(
    x: Tensor, index: Tensor, sizes: Tensor, eps: float, group: int | None = None
) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each channel over the rows of each of S streams, [S, C] each. `eps` as for `moments`.

    `index` is the stream of each row, [N], and `sizes` how many rows a stream has, [S, 1]. With `group`, every stream
    is so many consecutive rows: in channels_last they are then reduced together. Otherwise small maps are added up
    position by position, in two passes; for large ones the moments of each row are pooled as in `group_moments`.
    """
    streams, rows_last = len(sizes), _rows_last(x)
    if group is not None and rows_last is not None:
        return _in_parts(rows_last.view(streams, -1, x.shape[1]), 1)
    sizes = sizes.to(stats_dtype(x))

    def sum_of_streams(values: Tensor) -> Tensor:
        return values.new_zeros(streams, values.shape[1]).index_add_(0, index, values)

    positions = math.prod(x.shape[2:])
    if positions == 1 or (rows_last is None and positions <= _LARGEST_SMALL_MAP):
        rows = x.to(stats_dtype(x)).flatten(1)

        def mean_of_streams(values: Tensor) -> Tensor:
            return sum_of_streams(values).view(streams, -1, positions).mean(2) / sizes

        mean = mean_of_streams(rows)
        offset = mean[:, :, None].expand(-1, -1, positions).flatten(1)
        return mean, mean_of_streams((rows - offset.index_select(0, index)).square())
    row_mean, row_var = example_means_and_variances(x, eps)
    mean = sum_of_streams(row_mean) / sizes
    return mean, sum_of_streams(row_var + (row_mean - mean.index_select(0, index)).square()) / sizes


def _rows_last(x: Tensor) -> Tensor | None:
    """x as [N, positions, C] if that needs no copy, as in channels_last; None otherwise, and for other devices."""
    if not x.is_cpu or x.numel() == 0 or is_transformed(x):
        return None
    last = x[:, None] if x.dim() == 2 else x.movedim(1, -1)
    return last.flatten(1, -2) if last.is_contiguous() else None


def example_means_and_variances(x: Tensor, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of each example and channel, [N, C] each. `eps` as for `moments`.

    PyTorch's own kernel is used on a GPU and in graphs only: on a CPU it takes thirty times as long as two sums.
    """
    if x.dim() == 2 or (_is_eager(x) and math.prod(x.shape[2:]) == 1):
        x = x.to(stats_dtype(x)).flatten(1)
        return x, torch.zeros_like(x)
    if _can_use_gpu_moments(x):
        return _moments_by_kernel(x, x.shape[0])
    if not x.is_cpu or is_transformed(x):
        var, mean = torch.var_mean(x.to(stats_dtype(x)), list(range(2, x.dim())), correction=0)
        return mean, var
    if not (_is_native(x) and _is_channels_first(x)):
        rows_last = _rows_last(x)
        return _in_parts(x.flatten(2), 2) if rows_last is None else _in_parts(rows_last, 1)
    mean, square = (t.to(x.dtype) for t in example_moments(x))
    offset = mean * mean
    var = (square - offset).clamp_(min=0)
    # As in `moments`: where the mean is large compared to the spread, the difference of the two has lost digits.
    imprecise = offset.mean(0) > _SQUARED_OFFSET_LIMIT * (square.mean(0) - offset.mean(0) + eps)
    if imprecise.any():
        channels = imprecise.nonzero().squeeze(1)
        mean[:, channels], var[:, channels] = _two_pass_moments(x.index_select(1, channels).flatten(2), 2)
    return mean, var


def _in_parts(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Mean and biased variance over a dimension of [N, …, …], in parts that fit into the cache."""
    part = max(1, _MAX_PART_SIZE * len(rows) // max(1, rows.numel()))
    if part >= len(rows):
        return _two_pass_moments(rows, dim)
    means, variances = zip(*(_two_pass_moments(each, dim) for each in rows.split(part)), strict=True)
    return torch.cat(means), torch.cat(variances)


def _two_pass_moments(rows: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The same for few examples, because it makes a copy of them."""
    wide = rows.to(stats_dtype(rows))
    mean = wide.mean(dim, keepdim=True)
    return mean.squeeze(dim), (wide - mean).square_().mean(dim)


def group_means_and_variances(mean: Tensor, var: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Pool the moments of every `group` examples, and repeat the result for each of them, [N, C]."""
    index = torch.arange(mean.shape[0], device=mean.device) // group

    def average(values: Tensor) -> Tensor:
        return (torch.zeros_like(values).index_add(0, index, values) / group).index_select(0, index)

    group_mean = average(mean)
    return group_mean, average(var + (mean - group_mean) ** 2)


def _sums_of_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Σx and Σx² of each row. Long rows are cut: adding up short parts in double precision has smaller errors."""
    length = rows.shape[1]
    if length <= _MAX_PART_LENGTH:
        return rows.sum(1), torch.linalg.vector_norm(rows, dim=1).square_()
    part = _part_length(length)
    whole = length - length % part
    parts = rows.view(-1, part) if whole == length else rows[:, :whole].unflatten(1, (-1, part))
    total = parts.sum(-1).view(len(rows), -1).sum(1, dtype=torch.float64)
    squares = torch.linalg.vector_norm(parts, dim=-1).view(len(rows), -1).double().square_().sum(1)
    if whole < length:
        rest = rows[:, whole:]
        total += rest.sum(1)
        squares += torch.linalg.vector_norm(rest, dim=1).double().square_()
    return total, squares


@cache
def _part_length(length: int) -> int:
    """The largest suitable divisor; if there is none, a part is left over, which takes longer."""
    divisors = range(_MAX_PART_LENGTH, _MIN_PART_LENGTH, -1)
    return next((part for part in divisors if length % part == 0), _MAX_PART_LENGTH)


def normalise(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    *,
    is_stored: bool = False,
) -> Tensor:
    """weight · (x − mean) / √(var + eps) + bias, in the dtype and memory format of x.

    All other tensors are in `stats_dtype(x)`. Statistics are [C], or [N, C] for each row, or [G, C] for G groups of
    N / G consecutive rows. Without eps, a channel without variance gives `bias`.

    is_stored   whether the statistics do not depend on the batch
    """
    if eps == 0:
        var = var.masked_fill(var.detach() <= (32 * torch.finfo(var.dtype).eps * mean.detach()) ** 2, torch.inf)
    # A graph that was exported without gradients may be run with them; torch.compile makes another one then.
    has_gradients = mean.requires_grad or var.requires_grad
    if mean.dim() == 2 or has_gradients or (is_transformed(mean) and not torch.compiler.is_dynamo_compiling()):
        return _scale_and_shift(x, mean, var, weight, bias, eps)
    # batch_norm_elemt has no derivative.
    if x.is_cuda and x.dim() > 2 and _is_native(x) and not needs_gradients(weight, bias):
        return torch.batch_norm_elemt(x, weight, bias, mean, torch.rsqrt(var + eps), eps)
    if _is_native(x):
        y, *_ = torch._batch_norm_impl_index(x, weight, bias, mean, var, False, 0.0, eps, torch._C._get_cudnn_enabled())
        return y
    if torch.compiler.is_dynamo_compiling() and can_use_operators(x) and not is_stored:
        if can_scale_in_graph(x) and not needs_gradients(weight, bias):
            scale, shift = _scale_and_shift_of(mean, var, weight, bias, eps)
            return operators.scale_and_shift(x, *operators.computed_once(scale, shift))
        mean, var = operators.computed_once(mean, var)
    # Not F.batch_norm: a module around this layer whose own calls of it are replaced must not see ours.
    return torch.ops.aten.batch_norm(  # type: ignore[no-any-return]
        x, weight, bias, mean, var, False, 0.0, eps, torch.backends.cudnn.enabled
    )


def needs_gradients(*tensors: Tensor | None) -> bool:
    """Whether gradients with respect to one of the tensors will be computed."""
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)


def can_scale_in_graph(x: Tensor) -> bool:
    """Whether a compiled graph may compute x·scale + shift, which takes less time than (x − mean)·scale + bias.

    The product with the mean costs digits if the mean is large compared to the spread; less than half precision does.
    """
    return _is_half_precision_map(x)


def _scale_and_shift_of(
    mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """What makes x·scale + shift the same as weight · (x − mean) / √(var + eps) + bias."""
    scale = torch.rsqrt(var + eps)
    if weight is not None:
        scale = scale * weight
    return scale, -mean * scale if bias is None else torch.addcmul(bias, mean, scale, value=-1)


def _scale_and_shift(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """`normalise` for statistics per example, or ones that need gradients: PyTorch's kernel supports neither."""
    scale, shift = _scale_and_shift_of(mean, var, weight, bias, eps)
    if scale.dim() == 2 and not is_transformed(x):
        rows_last = _rows_last(x)
        if rows_last is not None:
            rows = rows_last.view(len(scale), -1, x.shape[1]).to(scale.dtype)
            y = torch.addcmul(shift[:, None], rows, scale[:, None]).to(x.dtype)
            # Maps of one value are in both formats. PyTorch's kernel gives the strides of contiguous ones; for others
            # the next convolution would copy its weight, which takes longer than all else here.
            return y.view(x.shape) if x.is_contiguous() else y.as_strided(x.shape, x.stride())
    if scale.dim() == 2 and not is_tracing() and len(scale) < len(x):
        scale, shift = (t.repeat_interleave(len(x) // len(scale), 0) for t in (scale, shift))
    if scale.dim() == 2 and _is_channels_first(x) and _is_native(x) and x[0, 0].numel() >= _LEAST_NATIVE_MAP:
        return _scale_and_shift_maps(x, scale, shift)
    shape = [*scale.shape, *[1] * (x.dim() - 2)]
    if x.is_cuda and _is_half_precision_map(x) and _is_native(x) and not torch.is_grad_enabled():
        return torch.addcmul(shift.view(shape), x, scale.view(shape), out=torch.empty_like(x))
    return torch.addcmul(shift.view(shape), x.to(scale.dtype), scale.view(shape)).to(x.dtype)


def _scale_and_shift_maps(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x · scale + shift for maps: PyTorch's kernel, for which every map is a channel, takes half as long as addcmul."""
    mean, var = torch.zeros(scale.numel()), torch.ones(scale.numel())
    maps = x.view(1, scale.numel(), -1)
    y, *_ = torch._batch_norm_impl_index(
        maps, scale.flatten(), shift.flatten(), mean, var, False, 0.0, 0.0, torch._C._get_cudnn_enabled()
    )
    return y.view_as(x)


def batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, LazyStatistics]:
    """Normalise a batch with its own statistics; also return these.

    PyTorch's training kernel (on a GPU cuDNN's, which wants the affine parameters in single precision) computes and
    applies them at once, with the right gradients. `moments` and `normalise` are used if it must not be called, and for
    channels-first maps on a CPU, for which it is slow.
    """
    has_kernel = weight is not None and bias is not None and eps > 0 and _is_eager(x)
    if has_kernel and not (_is_channels_first(x) and _is_native(x)):
        y, mean, inverse_std, *_ = torch._batch_norm_impl_index(
            x, weight, bias, None, None, True, 0.0, eps, torch._C._get_cudnn_enabled()
        )
        return y, LazyStatistics(mean, inverse_std, eps)
    mean, var = moments(x, eps)
    return normalise(x, mean, var, weight, bias, eps), LazyStatistics(mean, var)


def is_slow_in_cudnn(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether our kernels of a layer may take the place of cuDNN's for training, and are faster.

    They are for maps in channels_last, by a tenth to a half in half precision (measured on an H200), and for large maps
    of few channels.
    """
    if (x.is_cpu and not IS_INTERPRETED) or x.dim() < 3 or torch.is_grad_enabled():
        return False
    channels = x.shape[1]
    is_few = channels <= _FEW_CHANNELS and x.numel() >= _MANY_VALUES * channels
    is_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if not (is_few or is_last) or not can_use_layer_kernels(x):
        return False
    return all(t is None or can_be_read_by_kernels(t, x) for t in parameters)
