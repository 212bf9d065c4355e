"""In which number format networks compute.

"fp32" is the default everywhere, with TF32 off: correct first. The half formats keep convolutions and matrix products
in 16 bits under autocast; normalisation statistics, softmax and metrics stay in single precision or better.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, TypeVar

import torch
from torch import nn

from predbn.common import EvaluationError
from predbn.models import accelerate_prediction

__all__ = ["PRECISIONS", "Precision", "casting", "check_precision", "numerics", "prepare"]

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_CAST = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)

M = TypeVar("M", bound=nn.Module)


def check_precision(precision: Precision, device: torch.device | str) -> None:
    """Refuse formats that a CPU has not, or has in some models and not in others."""
    if precision != "fp32" and torch.device(device).type == "cpu":
        raise EvaluationError(f"precision {precision} needs a GPU: say fp32, or --device cuda.")


def prepare(model: M, precision: Precision) -> M:
    """The model with the weights that autocast would cast at every call cast once, in the layout convolutions like,
    with faster convolutions where a half format has them."""
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if precision in _HALF:
        for module in model.modules():
            if type(module) in _CAST:
                module.to(_HALF[precision])
        accelerate_prediction(model)
    return model


def casting(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Autocast for the half formats; it holds for the thread that enters it."""
    if precision in _HALF:
        return torch.autocast(device.type, _HALF[precision], cache_enabled=False)
    return nullcontext()


@contextmanager
def numerics(precision: Precision) -> Iterator[None]:
    """The process's switches for the length of a run: TF32 only where asked for, cuDNN's choices always the same."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark
    cudnn.allow_tf32 = matmul.allow_tf32 = precision == "tf32"
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = before
