"""The eps of batch norm at prediction, chosen on validation data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from predbn.common import MethodError
from predbn.metrics import Scores
from predbn.norm import Strategy

from .base import Method, find_method
from .predict import labelled_logits, predicting

GRID = (1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
_SAME_ACCURACY = 1e-12


class EpsScores(NamedTuple):
    """The scores with one eps on the validation data; None is the layers' own eps."""

    eps: float | None
    accuracy: float
    ece: float
    brier: float
    nll: float


@dataclass(frozen=True)
class EpsChoice:
    """The chosen eps for `predbn.adapt` (None: the layers' own), and the scores of all candidates."""

    eps: float | None
    table: tuple[EpsScores, ...]


def tune_eps(
    models: nn.Module | Sequence[nn.Module],
    batches: Iterable[Any],
    *,
    strategy: str | Strategy = "batch",
    grid: Sequence[float] = GRID,
    method: str | Method | None = None,
    bins: int = 10,
    max_accuracy_loss: float = 0.005,
    progress: Callable[[int, int], object] | None = None,
    **options: Any,
) -> EpsChoice:
    """The eps with the lowest ECE among those that lose at most `max_accuracy_loss` of accuracy.

    In x̂ = (x − μ) / √(σ² + eps) a larger eps acts as a temperature on the channels of small variance: it lowers
    confidence first, and accuracy later. Accuracy is compared with that of the layers' own eps, which is among the
    candidates and is kept unless another one is better; among equals the smallest is taken.

    models      one, or the members of an ensemble (by default `method` is "vanilla" or "ensemble" accordingly)
    batches     (images, labels), iterated over once for each eps
    progress    called with (passes done, passes in all)
    options     passed to `predbn.adapt`

    The models are left exactly as they were, even after an error.
    """
    members = [models] if isinstance(models, nn.Module) else list(models)
    if method is None:
        method = "vanilla" if isinstance(models, nn.Module) else "ensemble"
    method = find_method(method)
    if not members:
        raise MethodError("Expected one or several models to tune, but got none")
    if isinstance(batches, Iterator):
        raise MethodError(
            "Expected batches that can be iterated over once per eps, but got an iterator; give a list or a loader"
        )
    if len(grid) == 0:
        raise MethodError("Expected one or more values of eps as grid, but got none")
    if not max_accuracy_loss >= 0:
        raise MethodError(f"Expected max_accuracy_loss to be at least 0, but got {max_accuracy_loss}")
    if "eps" in options:
        raise MethodError("eps cannot be given to tune_eps; give the values to try as grid")
    candidates = (None, *sorted(set(grid)))
    table: list[EpsScores] = []
    for eps in candidates:
        table.append(_score(members, batches, method, bins, strategy, {**options, "eps": eps}))
        if progress is not None:
            progress(len(table), len(candidates))
    min_accuracy = table[0].accuracy - max_accuracy_loss - _SAME_ACCURACY
    best = min((row for row in table if row.accuracy >= min_accuracy), key=lambda row: row.ece)
    return EpsChoice(best.eps, tuple(table))


def _score(
    members: list[nn.Module],
    batches: Iterable[Any],
    method: Method,
    bins: int,
    strategy: str | Strategy,
    options: dict[str, Any],
) -> EpsScores:
    scores: Scores | None = None
    with predicting(members, batches, strategy, **options):
        for logits, labels in labelled_logits(members, batches):
            logs = method.log_probabilities(logits)
            if scores is None:
                scores = Scores(logs.shape[1], bins=bins)
            scores.update(logs.exp(), labels, log_probabilities=logs)
    assert scores is not None
    metrics = scores.compute()
    return EpsScores(options["eps"], metrics["accuracy"], metrics["ece"], metrics["brier"], metrics["nll"])
