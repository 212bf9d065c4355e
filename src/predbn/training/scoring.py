"""Scores of a network in evaluation mode: loss and accuracy after an epoch, all metrics at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from predbn.data import Images, Rows
from predbn.metrics import ScoreHistogram, Scores


@torch.no_grad()
def sum_loss_and_correct(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], device: torch.device) -> Tensor:
    """The summed loss and the number of correct predictions, float64 [2]."""
    totals = torch.zeros(2, device=device, dtype=torch.float64)
    model.eval()
    for inputs, labels in batches:
        logits = model(inputs)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        totals += torch.stack([loss, (logits.argmax(1) == labels).sum()]).double()
    return totals


@torch.no_grad()
def score(model: nn.Module, data: Images | Rows, device: torch.device, *, size: int = 500) -> dict[str, float]:
    """Accuracy, NLL, Brier score (summed over the classes), ECE (10 bins) and, for two classes, the AUC.

    With the running statistics, in batches of `size`, and with convolutions in fp32 without TF32.
    """
    scores, histogram = Scores(len(data.classes)), ScoreHistogram()
    is_binary = len(data.classes) == 2
    model.eval()
    with backend_settings(torch.backends.cudnn, allow_tf32=False):
        for batch in data.batches(size, device=device):
            logits = model(batch.inputs).float()
            probabilities = logits.softmax(1)
            scores.update(probabilities, batch.labels, log_probabilities=logits.log_softmax(1))
            if is_binary:
                histogram.update(probabilities[:, 1], batch.labels)
    computed = scores.compute()
    values = {name: computed[name] for name in ("accuracy", "nll", "brier", "ece")}
    return {**values, "auc": histogram.auc()} if is_binary else values


@contextmanager
def backend_settings(backend: Any, **settings: bool) -> Iterator[None]:
    """Change attributes of a torch backend, such as torch.backends.cudnn, for the length of a block."""
    before = {name: getattr(backend, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(backend, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(backend, name, value)
