"""The passes of `auto`: which classes does a batch hold?

Each pass knows the classes that the one before it has predicted; the first one knows nothing. If these are few, one
more pass looks whether that can be right (`mixed_classes.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..segments import Segments
from ..tracing import is_tracing
from .calibration import Calibration
from .composition import Composition, composition_of
from .mixed_classes import SeenLayer, better_explanation, is_few, source_composition


def find_composition(
    run_pass: Callable[[Composition], tuple[Any, SeenLayer | None]],
    passes: int,
    clean: Calibration,
    segments: Segments | None,
    examples: int | None,
    *,
    is_sync: bool,
) -> Composition | None:
    """The classes of a batch, for the last of so many passes; None if the model does not predict classes.

    run_pass   predicts the batch with a composition; what the model has returned, and the last layer that knows classes
    clean      the calibration of a layer that has classes
    examples   how many examples the batch has if it has no segments; None if that is not known
    """
    few = Composition()
    last: SeenLayer | None = None
    for _ in range(passes - 1):
        output, last = run_pass(clean.completed(few))
        predicted = composition_of(output, segments)
        if predicted is None:
            return None
        few = predicted
    assert few.shares is not None
    n: Tensor | int | None = examples if segments is None else segments.size_tensor(few.shares)
    if last is not None and n is not None:
        mixed = source_composition(clean, few, n)
        is_suspicious = is_few(few, mixed, n)
        # Processes that share a batch make the same passes, whatever each of them predicts.
        if is_tracing() or is_sync or _is_recorded(is_suspicious) or bool(is_suspicious.any()):
            difference = last.difference(few)
            _, last = run_pass(clean.completed(mixed))
            if last is not None:
                few = better_explanation(few, mixed, is_suspicious, difference, last.difference(None))
    return clean.completed(few)


def _is_recorded(x: Tensor) -> bool:
    """Whether a CUDA graph is being recorded, in which nothing can be read."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()
