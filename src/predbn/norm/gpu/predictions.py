"""Which classes a model has predicted, and how sure it was: `mean_predictions` of `norm/composition.py`.

As operations of PyTorch it is twenty, each of which takes the host longer than the GPU. Here one program has the scores
of an example; it counts the predicted class and stores the confidence,

    max_k softmax(s)_k = 1/Σ_k exp(s_k − max s),

and another kernel divides by the number of examples. Counts are whole numbers, and confidences are added up in a fixed
order, so that the result does not vary.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .launch import kernel, power_of_2

MOST_CLASSES = 4096
"""How many classes there may be: one program has the scores of all."""
_EXAMPLES = 1024
"""Examples whose confidence is added up at a time."""


@kernel()
def _predictions(scores, counts, confidences, stride, classes, CLASSES: tl.constexpr):
    example = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, CLASSES)
    score = tl.load(scores + example * stride + k, mask=k < classes, other=float("-inf")).to(tl.float32)
    part = tl.exp(score - tl.max(score, 0))
    total = tl.sum(part, 0)
    is_finite = total == total
    # The first one, if several have the same probability.
    predicted = tl.min(tl.where(part == 1.0, k, classes - 1), 0)
    tl.atomic_add(counts + predicted, 1, mask=is_finite)
    tl.store(confidences + example, tl.where(is_finite, 1 / total, 0.0))


@kernel()
def _means(counts, confidences, means, count, examples, classes, CLASSES: tl.constexpr, EXAMPLES: tl.constexpr):
    k = tl.arange(0, CLASSES)
    own = tl.load(counts + k, mask=k < classes, other=0)
    finite = tl.sum(own, 0).to(tl.float32)
    confidence = tl.zeros([EXAMPLES], tl.float32)
    for first in range(0, examples, EXAMPLES):
        example = first + tl.arange(0, EXAMPLES)
        confidence += tl.load(confidences + example, mask=example < examples, other=0.0)
    divisor = tl.maximum(finite, 1.0)
    tl.store(means + k, own.to(tl.float32) / divisor, mask=k < classes)
    tl.store(means + classes, tl.sum(confidence, 0) / divisor)
    tl.store(count, finite)


def can_be_counted(scores: Tensor) -> bool:
    """Whether the kernels may read these scores, [N, K]."""
    is_number = scores.dtype in (torch.float16, torch.bfloat16, torch.float32)
    return is_number and scores.stride(1) == 1 and 0 < scores.shape[1] <= MOST_CLASSES and len(scores) > 0


def mean_predictions(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The share of each class and the mean confidence, [K + 1], and of how many finite examples, [1]."""
    examples, classes = scores.shape
    counts = torch.zeros(classes, dtype=torch.int32, device=scores.device)
    confidences = torch.empty(examples, dtype=torch.float32, device=scores.device)
    means, count = confidences.new_empty(classes + 1), confidences.new_empty(1)
    block = power_of_2(classes)
    _predictions((examples, 1, 1), (scores, counts, confidences), (scores.stride(0), classes), constants=(block,))
    constants = block, min(_EXAMPLES, power_of_2(examples))
    _means((1, 1, 1), (counts, confidences, means, count), (examples, classes), constants=constants)
    return means, count
