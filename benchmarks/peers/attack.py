"""Rows that are chosen to harm the predictions of the other rows of their batch.

Batch statistics couple the rows of a batch, so that whoever owns some of its rows can steer the predictions of the
others. This is the "distribution invading attack" (Wu et al. 2023, "Uncovering adversarial risks of test-time
adaptation", ICML) in the form in which MedBN (Park et al. 2024, CVPR) measures it: projected gradient descent on the
malicious rows with the signs of the gradients, from grey images, where any pixel may become anything from 0 to 255. The
attacker knows the network, the defence, the labels and all other rows; gradients flow through the statistics.

    targeted   40 of 200 rows make one chosen row, the first, be predicted as the class after its own:
               lower its cross-entropy to that class, 100 steps of 1/255
    everyone   10 of 100 rows raise the mean cross-entropy of all others, each counted up to 5 as published,
               40 steps of 1/10

Unlike in the published attack, the rows with the best loss of all steps are used and not those of the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

PIXELS = 255.0
_LOSS_LIMIT = 5.0


@dataclass(frozen=True)
class Attack:
    """An attack on a batch of `rows` rows, the last `malicious` of which belong to the attacker.

    With fewer steps than published the steps are longer, so that pixels can be moved as far.
    """

    kind: Literal["targeted", "everyone"]
    rows: int
    malicious: int
    steps: int
    reach: float
    """How far all steps together can move a pixel, as a share of the range of pixels."""

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What the attacker lowers."""
        if self.kind == "targeted":
            return F.cross_entropy(logits[:1], target_class(logits, labels))
        others = slice(None, -self.malicious)
        return -F.cross_entropy(logits[others], labels[others], reduction="none").clamp(max=_LOSS_LIMIT).mean()

    def run(self, predict: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Tensor:
        """The batch as floats, its malicious rows replaced. `predict` must not remember what it is shown."""
        benign = images[: -self.malicious].float()
        rows = torch.full_like(images[-self.malicious :], PIXELS / 2, dtype=torch.float32)
        best_rows, best_loss = rows, torch.inf
        step = PIXELS * self.reach / self.steps
        for number in range(self.steps + 1):
            rows = rows.detach().requires_grad_(True)
            with torch.enable_grad():
                loss = self.loss(predict(torch.cat([benign, rows])), labels)
            if loss.item() < best_loss:
                best_rows, best_loss = rows.detach(), loss.item()
            if number < self.steps:
                (gradient,) = torch.autograd.grad(loss, rows)
                rows = (rows.detach() - step * gradient.sign()).clamp(0, PIXELS)
        return torch.cat([benign, best_rows])


def target_class(logits: Tensor, labels: Tensor) -> Tensor:
    """The class that the first row shall be predicted as, [1]."""
    return (labels[:1] + 1) % logits.shape[1]


PUBLISHED = {
    "targeted": Attack("targeted", rows=200, malicious=40, steps=100, reach=100 / 255),
    "everyone": Attack("everyone", rows=100, malicious=10, steps=40, reach=4.0),
}


@torch.no_grad()
def outcome(attack: Attack, predict: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> dict[str, float]:
    """What the attack achieves on one batch, and what the same batch would be predicted as without it.

    success     1 if the chosen row is predicted as the class that the attacker wants (targeted only)
    error       of the benign rows under attack
    unattacked  their error if the other rows are the batch's own
    """
    benign = slice(None, -attack.malicious)
    before = predict(images).argmax(1)
    logits = predict(attack.run(predict, images, labels))
    after = logits.argmax(1)
    result = {
        "error": float((after != labels)[benign].float().mean()),
        "unattacked": float((before != labels)[benign].float().mean()),
    }
    if attack.kind == "targeted":
        result["success"] = float(after[0] == target_class(logits, labels))
    return result
