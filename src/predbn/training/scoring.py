"""How good a network is, in evaluation mode: loss and accuracy after an epoch, all scores when it is finished."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from predbn.data import Images, Rows
from predbn.metrics import ScoreHistogram, Scores

from .trainer import backend_settings


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
    """Accuracy, NLL, Brier score (summed over the classes), ECE (10 bins) and, if there are two classes, the AUC.

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
