"""The number format in which networks compute.

"fp32" is the default everywhere, with TF32 off: correctness comes first. In the half formats, convolutions and matrix
products run in 16 bits under autocast; normalisation statistics, softmax and metrics stay in fp32 or better.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, TypeVar

import torch
from torch import nn

from predbn.common import EvaluationError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_CAST_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)

M = TypeVar("M", bound=nn.Module)


def check_precision(precision: Precision, device: torch.device | str) -> None:
    """Raise an error for the other formats on a CPU, which lacks some of them or has them for some layers only."""
    if precision != "fp32" and torch.device(device).type == "cpu":
        raise EvaluationError(f"precision {precision} needs a GPU: use fp32, or --device cuda.")


def prepare_model(model: M, precision: Precision) -> M:
    """Make a model ready to predict, in place.

    Convolutions get the layout that they are fastest in. For a half format, the weights that autocast would cast at
    every call are cast once.
    """
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if precision in _HALF:
        for module in model.modules():
            if type(module) in _CAST_LAYERS:
                module.to(_HALF[precision])
    return model


def casting(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast for the half formats, in the thread that enters it."""
    if precision in _HALF:
        return torch.autocast(device.type, _HALF[precision], cache_enabled=False)
    return nullcontext()


@contextmanager
def numerics(precision: Precision) -> Iterator[None]:
    """Set the global switches of torch for a run: TF32 only if asked for, and cuDNN deterministic."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark
    cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = before
